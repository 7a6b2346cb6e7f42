//! Queue pairs with room for inline data, which not every device has. The tests share this file.

/// Bytes of inline data that are asked for.
const INLINE: u32 = 64;

/// What `create` makes with this many bytes of inline data: with none if the device refuses them, as MANA does.
pub(crate) fn with_inline<T>(create: impl Fn(u32) -> uverbs::Result<T>) -> uverbs::Result<T> {
    match create(INLINE) {
        Err(error) if error.hint().is_some_and(|hint| hint.contains("bytes of inline data")) => create(0),
        made => made,
    }
}
