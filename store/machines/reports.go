package machines

import (
	"fmt"
	"log/slog"
	"strings"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Reports decodes the replicas' reports about machines, and converts each to a value of type T. A report that has not
// changed is not decoded again. One goroutine uses it.
type Reports[T any] struct {
	Of     func(Machine) T        // makes the value of a report; called once for each version
	Except string                 // process whose reports are left out; empty: no process
	Log    *slog.Logger           // not nil
	read   map[string]reported[T] // by path
}

// reported is the content of one blob.
type reported[T any] struct {
	revision int64
	of       T
	bad      bool
}

// Read returns the values for the present content of the folder, ordered by path, in a new slice. Invalid reports are
// left out, and each version of them is logged once.
func (r *Reports[T]) Read(folder kv.Folder) []T {
	next, all := make(map[string]reported[T], len(folder.Blobs)), make([]T, 0, len(folder.Blobs))
	for _, blob := range folder.Blobs {
		if r.Except != "" && strings.HasPrefix(blob.Path, Folder+r.Except+"/") {
			continue
		}
		one, same := r.read[blob.Path]
		if !same || one.revision != blob.Revision {
			m, err := Decode(blob.Raw)
			if err == nil && !strings.HasSuffix(blob.Path, "/"+m.ID().String()) {
				err = fmt.Errorf("the report names machine %s", m.ID())
			}
			if one = (reported[T]{revision: blob.Revision, bad: err != nil}); err != nil {
				r.Log.Warn("an invalid report about a machine is ignored", obs.KeyError, fmt.Errorf("%s: %w", blob.Path, err))
			} else {
				one.of = r.Of(m)
			}
		}
		if next[blob.Path] = one; !one.bad {
			all = append(all, one.of)
		}
	}
	r.read = next
	return all
}
