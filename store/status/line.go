package status

import "slices"

// line is a queue of keys of objects. A key is in the queue at most once. A turn is the name of the owner of some keys
// (Desired.Turn). Turns alternate, and the keys of one turn alternate too. Therefore an owner of many keys delays only
// its own keys.
type line struct {
	turns []string // turns that have keys, the next turn first
	keys  map[string][]Key
}

func newLine() line { return line{keys: map[string][]Key{}} }

// push appends a key to its turn.
func (l *line) push(turn string, k Key) {
	if len(l.keys[turn]) == 0 {
		l.turns = append(l.turns, turn)
	}
	l.keys[turn] = append(l.keys[turn], k)
}

// drop removes the keys that the predicate selects.
func (l *line) drop(is func(Key) bool) {
	l.turns = slices.DeleteFunc(l.turns, func(turn string) bool {
		l.keys[turn] = slices.DeleteFunc(l.keys[turn], is)
		return l.emptied(turn)
	})
}

// emptied removes a turn without keys, and reports whether the turn was removed.
func (l *line) emptied(turn string) bool {
	if len(l.keys[turn]) > 0 {
		return false
	}
	delete(l.keys, turn)
	return true
}

// outcome is the result of visit in line.each.
type outcome uint8

const (
	waits outcome = iota // the key moves behind the other keys of its turn
	leaves
	stops // the key stays first in its turn, and the turn stays first
)

// each calls the function visit with each key once, in the order of turns. It ends early if the function returns stops.
// A turn whose keys were all visited moves behind the other turns.
func (l *line) each(visit func(Key) outcome) {
	for range len(l.turns) {
		turn := l.turns[0]
		for range len(l.keys[turn]) {
			k := l.keys[turn][0]
			is := visit(k)
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

// rotate moves the first key of the first turn behind the other keys of this turn, and the turn behind the other turns.
// rotate is called after the function visit of line.each has returned stops for this key.
func (l *line) rotate() {
	turn := l.turns[0]
	l.keys[turn] = append(l.keys[turn][1:], l.keys[turn][0])
	l.turns = append(l.turns[1:], turn)
}
