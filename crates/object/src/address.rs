//! Stores by their addresses: `s3://bucket/prefix`, `gs://…`, `az://…`, `http://…`, `file:///directory`.
//!
//! Credentials, endpoints and regions have the names of the environment variables of the stores' own tools.
//! The stores' own retries are off, since [`Options`](crate::Options) set how often and for how long to retry. Objects
//! are deleted one in a request: the answer to a request for many has status 200 even if some deletions fail, so that a
//! refusal would go unnoticed.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{
    CredentialProvider, Error as StoreError, ObjectStore, ObjectStoreScheme, RetryConfig,
};
use url::{Position, Url};

use crate::error::{Error, Result};
use crate::failure::in_short;

/// Prefixes of these variables, as users set them.
const NAMES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// The store at `address`, and the prefix in it that the address names. `variables` are those of the environment, or
/// a replacement for them: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and so on;
/// others are ignored. No request is sent to the store yet.
///
/// # Errors
/// [`Error::Address`].
pub fn open(
    address: &str,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<(Arc<dyn ObjectStore>, String)> {
    let refuse = |what: String| Error::Address { address: address.to_owned(), what };
    let known = "it should look like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, \
                 http://server/prefix or file:///directory";
    let url = Url::parse(address).map_err(|error| refuse(format!("{error}; {known}")))?;
    if url.password().is_some() {
        let mut address = url.clone();
        let _ = address.set_password(None); // Cannot fail for an address that had a password.
        let what = "a password is not taken from an address, which is shown and stored: set the store's variables";
        return Err(Error::Address { address: address.into(), what: what.to_owned() });
    }
    if url.query().is_some() || url.fragment().is_some() {
        // The query may be a signature, which is a secret.
        let address = url[..Position::AfterPath].to_owned();
        let what = "an address ends with its path: what is set after ? or # belongs into the store's variables, and in \
                    a name these are written %3F and %23";
        return Err(Error::Address { address, what: what.to_owned() });
    }
    if ["s3", "s3a", "gs"].contains(&url.scheme())
        && (!url.username().is_empty() || url.port().is_some())
    {
        let what = "a bucket has neither a user nor a port: set the store's variables, such as AWS_ENDPOINT_URL";
        return Err(refuse(what.to_owned()));
    }
    let parsed = ObjectStoreScheme::parse(&url).map_err(|_| refuse(known.to_owned()))?;
    let (scheme, prefix) = parsed;
    // Only the first call counts, and another part of the program may have installed a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut variables: Vec<(String, String)> = variables
        .into_iter()
        .filter(|(name, _)| NAMES.iter().any(|it| name.starts_with(it)))
        .map(|(name, value)| (name.to_lowercase(), value))
        .collect();
    // A user who configures an http endpoint wants plain HTTP.
    if variables.iter().any(|(name, to)| name.contains("endpoint") && to.starts_with("http:")) {
        variables.push(("aws_allow_http".to_owned(), "true".to_owned()));
    }
    variables.push(("aws_disable_bulk_delete".to_owned(), "true".to_owned()));
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    macro_rules! built {
        ($builder:ty, $url:expr) => {{
            let named = <$builder>::new().with_url($url).with_retry(retry);
            let set = variables.into_iter().fold(named, |builder, (name, value)| {
                match name
                    .strip_prefix("aws_")
                    .filter(|it| *it == "allow_http")
                    .unwrap_or(&name)
                    .parse()
                {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                }
            });
            set.clone().build().and_then(|store| {
                let from = Credentials(Arc::clone(store.credentials()));
                let store = set.with_credentials(Arc::new(from)).build()?;
                Ok(Arc::new(store) as Arc<dyn ObjectStore>)
            })
        }};
    }
    let store = match scheme {
        ObjectStoreScheme::Local => Ok(Arc::new(LocalFileSystem::new()) as Arc<dyn ObjectStore>),
        ObjectStoreScheme::Memory => Ok(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>),
        ObjectStoreScheme::AmazonS3 => built!(AmazonS3Builder, address),
        ObjectStoreScheme::GoogleCloudStorage => built!(GoogleCloudStorageBuilder, address),
        ObjectStoreScheme::MicrosoftAzure => built!(MicrosoftAzureBuilder, address),
        ObjectStoreScheme::Http => {
            let allowed = object_store::ClientOptions::new().with_allow_http(true);
            let server = &url[..Position::BeforePath];
            let named = HttpBuilder::new().with_url(server).with_retry(retry);
            let built = named.with_client_options(allowed).build();
            built.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        _ => return Err(refuse(known.to_owned())),
    };
    Ok((store.map_err(|error| refuse(error.to_string()))?, prefix.to_string()))
}

/// Credentials whose failing source is reported with the variant for it, and not as a failure of the store.
#[derive(Debug)]
struct Credentials<C>(Arc<dyn CredentialProvider<Credential = C>>);

#[async_trait]
impl<C: Debug + Send + Sync + 'static> CredentialProvider for Credentials<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        self.0.get_credential().await.map_err(|error| StoreError::Unauthenticated {
            path: "the credentials".to_owned(),
            source: NoCredentials(in_short(&error)).into(),
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there are no credentials in the store's variables, and none were found elsewhere: {0}")]
struct NoCredentials(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_store_and_a_prefix() {
        let name = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let variables = [
            name("AWS_ACCESS_KEY_ID", "key"),
            name("AWS_SECRET_ACCESS_KEY", "secret"),
            name("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
            // A variable of another program, although the builder knows the key.
            name("REGION", "nowhere"),
        ];
        for (address, store, prefix) in [
            ("s3://bucket/a/b", "AmazonS3(bucket)", "a/b"),
            ("http://127.0.0.1:9/dav/a", "HttpStore", "dav/a"),
            ("file:///tmp/a", "LocalFileSystem(file:///)", "tmp/a"),
            ("memory:///a", "InMemory", "a"),
        ] {
            let (found, at) = open(address, variables.clone()).unwrap();
            assert_eq!((found.to_string().as_str(), at.as_str()), (store, prefix), "{address}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_shown() {
        let error = open("http://me:hunter2@127.0.0.1:9/dav", []).unwrap_err().to_string();
        assert!(
            error.contains("http://me@127.0.0.1:9/dav") && error.contains("variables"),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
        // In an address of Azure's, this part is not a user.
        assert!(open("abfss://files@account.dfs.core.windows.net/a", []).is_ok());
    }

    #[test]
    fn what_an_address_cannot_say_is_refused_and_a_signature_not_repeated() {
        for (address, shown) in [
            ("s3://b/q?x=1", "s3://b/q:"),
            ("s3://b/q#x", "s3://b/q:"),
            ("file:///tmp/a?", "file:///tmp/a:"),
            ("az://c/a?sig=hunter2", "az://c/a:"),
            ("s3://me@b/q", "s3://me@b/q:"),
            ("gs://b:9000/q", "gs://b:9000/q:"),
        ] {
            let error = open(address, []).unwrap_err().to_string();
            assert!(error.starts_with(shown) && error.contains("variables"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn another_address_gets_the_form_of_a_valid_one() {
        for address in ["", "bucket/prefix", "ftp://host/a", "s3:bucket", "/tmp"] {
            let error = open(address, []).unwrap_err();
            assert!(matches!(&error, Error::Address { .. }), "{error}");
            assert!(error.to_string().contains("s3://bucket/prefix"), "{error}");
        }
    }
}
