//! Footnotes: remarks, each printed once, with the numbers of the cells that they belong to.
//!
//! The same sentence often applies to a whole column of cells; repeated in each it would bury
//! the table. Invariants: [FN-1] a number names one sentence, and every sentence has one.

/// Sentences in the order in which they were first met; the first is number 1.
#[derive(Debug, Clone, Default)]
pub(crate) struct Footnotes {
    sentences: Vec<String>,
}

impl Footnotes {
    /// The numbers of a cell's remarks, ascending, such as `1,3`; empty when it has none.
    pub(crate) fn marks(&mut self, remarks: &[String]) -> String {
        let mut numbers: Vec<usize> = remarks.iter().map(|remark| self.number(remark)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        numbers.join(",")
    }

    fn number(&mut self, remark: &str) -> usize {
        if let Some(index) = self.sentences.iter().position(|sentence| sentence == remark) {
            return index + 1;
        }
        self.sentences.push(remark.to_owned());
        self.sentences.len() // [FN-1]
    }

    /// The sentences; number 1 comes first.
    pub(crate) fn sentences(&self) -> &[String] {
        &self.sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_said_twice_has_one_number() {
        let mut notes = Footnotes::default();
        let remarks = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let (both, second): (Vec<String>, Vec<String>) = (remarks(&["a", "b"]), remarks(&["b"]));
        assert_eq!(notes.marks(&both), "1,2");
        assert_eq!(notes.marks(&second), "2", "[FN-1]");
        assert_eq!(notes.marks(&[]), "");
        assert_eq!(notes.sentences(), ["a", "b"]);
    }
}
