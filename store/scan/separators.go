package scan

// Separators counts the commas outside of strings in a JSON text that arrives in pieces. A text has more values than
// commas. For other texts the count has no meaning.
type Separators struct {
	Commas int

	quoted, escaped bool
}

// Add counts the next piece.
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
