//! Pages that contain their own identity and state.

use forebay_object::{FileId, PageId, Result, View, Writer};

pub(crate) const PAGE: usize = 512;

/// Fills a page with its identity and state, so that every byte shows both.
pub(crate) fn fill(page: PageId, state: u64, bytes: &mut [u8]) {
    let word = state << 32 | u64::from(page.block);
    bytes.chunks_exact_mut(8).for_each(|it| it.copy_from_slice(&word.to_le_bytes()));
}

/// The state in a page; 0 for one that was never written.
#[track_caller]
pub(crate) fn state_in(page: PageId, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().unwrap()));
    let first = words.next().unwrap();
    assert!(words.all(|it| it == first), "{page} is torn");
    assert!(first == 0 || first as u32 == page.block, "{page} has the bytes of another");
    first >> 32
}

pub(crate) fn pages(file: FileId, blocks: impl IntoIterator<Item = u32>) -> Vec<PageId> {
    blocks.into_iter().map(|block| PageId { file, block }).collect()
}

pub(crate) fn commit(writer: &Writer, pages: &[PageId], state: u64) -> Result<u64> {
    writer.commit(pages, &mut |page, bytes| {
        fill(page, state, bytes);
        Ok(())
    })
}

/// The states of the first `blocks` pages of `file`.
pub(crate) fn states(view: &View, file: FileId, blocks: u32) -> Result<Vec<u64>> {
    let mut states = vec![0; blocks as usize];
    view.read_pages(&pages(file, 0..blocks), &mut |page, bytes| {
        states[page.block as usize] = state_in(page, bytes);
    })?;
    Ok(states)
}
