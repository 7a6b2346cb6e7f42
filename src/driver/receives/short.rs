//! Short paths for receives of one piece each, all or none of which are posted. A queue with such a path posts them by it, or does
//! nothing.

/// Calls a function with a way to the queue, if the queue has such a path: the function is compiled for each. The other work is for a ring,
/// on which the path for all requests is short.
// The way is a type without a value, so that the call passes nothing else than its arguments, and can be the last thing that a function does.
macro_rules! with_short {
    ($receives:expr, $post:ident($($argument:expr),*), else $otherwise:expr) => {{
        use $crate::driver::receives::Receives as Of;
        match $receives {
            Of::Mlx5(_) => $post($($argument,)* |of| if let Of::Mlx5(queue) = of { Some(queue) } else { None }),
            Of::Mlx5Shared(_) => {
                $post($($argument,)* |of| if let Of::Mlx5Shared(queue) = of { Some(queue) } else { None })
            }
            Of::Efa(_) => $post($($argument,)* |of| if let Of::Efa(queue) = of { Some(&mut **queue) } else { None }),
            Of::Siw(_) => $post($($argument,)* |of| if let Of::Siw(queue) = of { Some(&mut **queue) } else { None }),
            Of::Rings(_) | Of::Announced(..) | Of::Lost(_) => $otherwise,
        }
    }};
}
pub(crate) use with_short;
