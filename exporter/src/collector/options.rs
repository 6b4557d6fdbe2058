//! Options of collectors, kept by their type: what all collectors share names none of them.

use std::any::Any;
use std::sync::Arc;

/// Values of any types; of each type the latest one counts. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Options(Vec<Arc<dyn Any + Send + Sync>>);

impl Options {
    /// Sets the options of the collector that has this type of them.
    pub fn set<T: Send + Sync + 'static>(&mut self, options: T) {
        self.0.push(Arc::new(options));
    }

    /// The options of this type, the default ones where none were set.
    pub fn get<T: Clone + Default + 'static>(&self) -> T {
        self.0.iter().rev().find_map(|options| options.downcast_ref::<T>()).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Period(u32);

    #[test]
    fn each_type_has_its_own_and_the_last_one_counts() {
        let mut options = Options::default();
        assert_eq!(options.get::<Period>(), Period(0));
        options.set(Period(1));
        options.set(Period(2));
        options.set(7_u32);
        assert_eq!((options.get::<Period>(), options.get::<u32>()), (Period(2), 7));
    }
}
