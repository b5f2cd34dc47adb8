package scan

// Separators counts the commas outside of strings in a JSON text that arrives in pieces. A JSON text has more values
// than commas, so the count is a lower bound of the number of values. For a text that is not JSON the count has no
// meaning. The zero value is ready for use. It is not safe for concurrent use.
type Separators struct {
	Commas int // count so far

	quoted, escaped bool
}

// Add counts the commas of the next piece, which may end anywhere in the text.
func (s *Separators) Add(piece []byte) {
	for _, c := range piece {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = s.quoted
		case c == '"':
			s.quoted = !s.quoted
		case c == ',' && !s.quoted:
			s.Commas++
		}
	}
}
