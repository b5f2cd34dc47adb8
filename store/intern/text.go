package intern

import "unique"

// Text is a text that is held once in this process, as long as anybody holds it: thousands of objects have the same. It is for texts that many
// have; one that nobody else has takes more memory so than without.
func Text(text string) string { return unique.Make(text).Value() }
