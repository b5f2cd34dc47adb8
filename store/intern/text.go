package intern

import "unique"

// Text returns one shared copy for equal texts, while any of them is in use. It is for texts that occur in thousands of
// objects. A text that occurs once takes more memory with Text than without.
func Text(text string) string { return unique.Make(text).Value() }
