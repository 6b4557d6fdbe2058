//! Lists of GPUs as SLURM writes them: `SLURM_JOB_GPUS`, and the vendors' `*_VISIBLE_DEVICES`.
//!
//! The numbers are indices in SLURM's own list of the node's GPUs, which need be neither minors nor what the vendor's
//! tools count (src/plugins/gres/gpu/gres_gpu.c sorts by file and link). Ids are certain.

use std::sync::Arc;

use cpu_topology::CpuSet;

/// GPUs of a list at most; a node has 16 of them, or 8 divided into 7 each.
const MOST: usize = 256;
/// Bytes of an id at most: `MIG-GPU-<uuid>/<instance>/<instance>` has 50.
const LONGEST: usize = 96;

/// Parses a list of indices, `0,2` or `0-3,5`. `None` if it is empty or malformed.
pub fn parse_gpu_indices(bytes: &[u8]) -> Option<Vec<u32>> {
    let list = CpuSet::parse(bytes).ok()?;
    let few = !list.is_empty() && list.len() <= MOST as u64;
    few.then(|| list.iter().collect())
}

/// Whether this is an id as NVIDIA and AMD write them. It may become part of a file's name only after a look for `/`.
fn is_gpu_id(bytes: &[u8]) -> bool {
    let rest = bytes.strip_prefix(b"GPU-").or_else(|| bytes.strip_prefix(b"MIG-"));
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/');
    rest.is_some_and(|rest| !rest.is_empty() && bytes.len() <= LONGEST && rest.iter().all(known))
}

/// Parses a list of ids, `GPU-…,MIG-…`. `None` if it is empty or anything in it is no id: a part of a list would pass for
/// the whole.
pub fn parse_gpu_ids(bytes: &[u8]) -> Option<Vec<Arc<str>>> {
    let id = |bytes: &[u8]| std::str::from_utf8(bytes).ok().filter(|_| is_gpu_id(bytes)).map(Arc::from);
    let ids: Vec<Arc<str>> =
        bytes.trim_ascii().split(|byte| *byte == b',').take(MOST + 1).map(id).collect::<Option<_>>()?;
    (ids.len() <= MOST).then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_lists_with_or_without_ranges() {
        assert_eq!(parse_gpu_indices(b"0"), Some(vec![0]));
        assert_eq!(parse_gpu_indices(b"0,2,3"), Some(vec![0, 2, 3]));
        assert_eq!(parse_gpu_indices(b"0-3,5\n"), Some(vec![0, 1, 2, 3, 5]));
        for bad in [&b""[..], b",", b"-1", b"1,", b"1,0", b"a", b"GPU-1", b"0-4294967295", b"0-256", b"0 1"] {
            assert_eq!(parse_gpu_indices(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn ids_are_believed_only_as_a_whole_list() {
        let ids = |text: &str| {
            let ids = parse_gpu_ids(text.as_bytes())?;
            Some(ids.iter().map(|id| id.to_string()).collect::<Vec<_>>())
        };
        let gpu = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
        let mig = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f";
        assert_eq!(ids(gpu), Some(vec![gpu.to_owned()]));
        assert_eq!(ids(&format!("{gpu},{mig}\n")), Some(vec![gpu.to_owned(), mig.to_owned()]));
        let old = format!("MIG-{gpu}/7/0");
        assert_eq!(ids(&old), Some(vec![old.clone()]), "drivers before 470");
        for bad in ["", ",", "0", "GPU-", "gpu-1", "0,GPU-1", "GPU-1,0", "GPU-1,", "GPU-../x", "NoDevFiles"] {
            assert_eq!(ids(bad), None, "{bad}");
        }
        assert_eq!(ids(&format!("GPU-{}", "1".repeat(93))), None);
        assert_eq!(ids(&vec!["GPU-1"; MOST].join(",")).map(|ids| ids.len()), Some(MOST));
        assert_eq!(ids(&vec!["GPU-1"; MOST + 1].join(",")), None);
    }
}
