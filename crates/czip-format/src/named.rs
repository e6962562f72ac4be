//! Enums whose cases have names.

/// Defines an enum, and by which name each case of it is shown.
macro_rules! named {
    ($(#[$of_type:meta])* $Type:ident { $($(#[$of_case:meta])* $Case:ident: $name:literal,)* }) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Type {
            $($(#[$of_case])* $Case,)*
        }

        impl $Type {
            /// All of them, in their order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Case),*];

            /// What a user calls it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Case => $name,)*
                }
            }
        }

        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
