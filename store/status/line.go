package status

import "slices"

// line is the keys that wait, each once. Turns go round, and in each its keys do: who has many waits for theirs.
type line struct {
	turns []string // those that have keys, the next one first
	keys  map[string][]Key
}

func newLine() line { return line{keys: map[string][]Key{}} }

// push puts a key behind those of its turn.
func (l *line) push(turn string, k Key) {
	if len(l.keys[turn]) == 0 {
		l.turns = append(l.turns, turn)
	}
	l.keys[turn] = append(l.keys[turn], k)
}

// drop takes keys out.
func (l *line) drop(is func(Key) bool) {
	l.turns = slices.DeleteFunc(l.turns, func(turn string) bool {
		l.keys[turn] = slices.DeleteFunc(l.keys[turn], is)
		return l.emptied(turn)
	})
}

// emptied forgets a turn that has no keys.
func (l *line) emptied(turn string) bool {
	if len(l.keys[turn]) > 0 {
		return false
	}
	delete(l.keys, turn)
	return true
}

// said is what may be said of a key in line.each.
type said uint8

const (
	waits said = iota // it goes behind the others of its turn
	leaves
	stops // it stays where it is, and so does its turn
)

// each looks at the keys in the order of turns, each once, until one stops it. A turn of which no key did goes behind the others.
func (l *line) each(look func(Key) said) {
	for range len(l.turns) {
		turn := l.turns[0]
		for range len(l.keys[turn]) {
			k := l.keys[turn][0]
			is := look(k)
			if is == stops {
				return
			}
			if l.keys[turn] = l.keys[turn][1:]; is == waits {
				l.keys[turn] = append(l.keys[turn], k)
			}
		}
		if l.turns = l.turns[1:]; !l.emptied(turn) {
			l.turns = append(l.turns, turn)
		}
	}
}

// took puts the key that stopped each behind the others of its turn, and the turn behind the others.
func (l *line) took() {
	turn := l.turns[0]
	l.keys[turn] = append(l.keys[turn][1:], l.keys[turn][0])
	l.turns = append(l.turns[1:], turn)
}
