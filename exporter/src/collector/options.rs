//! Options of collectors, kept by their type: what all collectors share names none of them.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// At most one value of a type. Cheap to clone.
#[derive(Clone, Default)]
pub struct Options(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Options {
    /// Sets the options of the collector that has this type of them.
    pub fn set<T: Clone + Default + Send + Sync + 'static>(&mut self, options: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(options));
    }

    /// The options of this type, the default ones where none were set.
    pub fn get<T: Clone + Default + Send + Sync + 'static>(&self) -> T {
        self.0
            .get(&TypeId::of::<T>())
            .and_then(|options| options.downcast_ref::<T>())
            .cloned()
            .unwrap_or_default()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("count", &self.0.len()).finish_non_exhaustive()
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
