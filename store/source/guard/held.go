package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"navarch.io/navarch/store/object"
)

// Holds says of an object that what became of it is not emitted: it vanished, or lost endpoints, and what was emitted last stands.
func (g *Guard) Holds(id object.ID) bool { return g.deleted[id] || g.changed[id] != nil }

// Held is what is held, in order.
func (g *Guard) Held() []object.Loss {
	held := make([]object.Loss, 0, len(g.deleted)+len(g.changed))
	for id := range g.deleted {
		held = append(held, object.Loss{ID: id})
	}
	for id, now := range g.changed {
		held = append(held, object.Loss{ID: id, Version: version(now)})
	}
	slices.SortFunc(held, object.Loss.Compare)
	return held
}

// Vanished is how many objects are held that are not there any more.
func (g *Guard) Vanished() int { return len(g.deleted) }

// Release lets exactly these losses go, and nothing is held any more; false: others are held, and nothing changes.
func (g *Guard) Release(losses []object.Loss) bool {
	if !slices.Equal(slices.SortedFunc(slices.Values(losses), object.Loss.Compare), g.Held()) {
		return false
	}
	clear(g.deleted)
	for id := range g.changed {
		delete(g.shrunk, id) // what was accepted is missed no more
	}
	clear(g.changed)
	return true
}

// Dismiss forgets objects that the source itself takes back, since nobody needs them any more: nobody misses them.
func (g *Guard) Dismiss(ids ...object.ID) {
	for _, id := range ids {
		delete(g.deleted, id)
		delete(g.changed, id)
	}
}

func version(o *object.Object) string {
	sum := sha256.Sum256(o.JSON)
	return hex.EncodeToString(sum[:8])
}
