package problems

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Found is a problem, and by how many replicas it was found.
type Found struct {
	model.Problem
	Replicas int
	First    string // one of them, by name
}

// Collector is the leader's end: what the replicas found. Its methods may be called from any goroutine.
type Collector struct {
	log  *slog.Logger
	now  atomic.Pointer[collected]
	seen map[string]parsed // by path; owned by Run
}

type collected struct {
	all  []Found
	more int
}

// parsed is one list.
type parsed struct {
	revision int64
	found    []model.Problem
	more     int
}

// NewCollector makes one that knows nothing; log nil is slog's default.
func NewCollector(log *slog.Logger) *Collector {
	if log == nil {
		log = slog.Default()
	}
	return &Collector{log: log}
}

// All lists what the replicas found, each problem once, by object; more is how many they left out. The list is not to be changed. While
// nobody collects it is empty.
func (c *Collector) All() (all []Found, more int) {
	if now := c.now.Load(); now != nil {
		return now.all, now.more
	}
	return nil, 0
}

// Collected says whether the lists were read since this process leads.
func (c *Collector) Collected() bool { return c.now.Load() != nil }

// Run follows the lists until the context ends, and forgets them then: it is for as long as a process leads.
// An error is of a folder without a name of the fleet's, which would be a mistake of this build.
func (c *Collector) Run(ctx context.Context, store *kv.Store) error {
	folders, err := store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	defer c.now.Store(nil)
	c.seen = map[string]parsed{}
	for f := range folders {
		c.take(f)
	}
	return nil
}

// take reads the lists of a folder that are new.
func (c *Collector) take(f kv.Folder) {
	next := make(map[string]parsed, len(f.Blobs))
	for _, blob := range f.Blobs {
		p, known := c.seen[blob.Path]
		if !known || p.revision != blob.Revision {
			var err error
			p = parsed{revision: blob.Revision}
			if p.found, p.more, err = decode(blob.Raw); err != nil {
				c.log.Warn("a replica's list of problems with objects cannot be read", obs.KeyError, fmt.Errorf("%s: %w", blob.Path, err))
			}
		}
		next[blob.Path] = p
	}
	c.seen = next
	c.now.Store(merge(next))
}

// merge has each problem once.
func merge(lists map[string]parsed) *collected {
	out, at := &collected{}, map[model.Problem]int{}
	for _, path := range slices.Sorted(maps.Keys(lists)) {
		out.more += lists[path].more
		for _, p := range lists[path].found {
			i, known := at[p]
			if !known {
				i = len(out.all)
				at[p] = i
				out.all = append(out.all, Found{Problem: p, First: replicaOf(path)})
			}
			out.all[i].Replicas++
		}
	}
	slices.SortFunc(out.all, func(a, b Found) int { return a.Problem.Compare(b.Problem) })
	return out
}

// replicaOf is the name of the replica that writes a list: its path ends in a part that is the process's own.
func replicaOf(path string) string {
	name := strings.TrimPrefix(path, folder)
	if i := strings.LastIndex(name, "-"); i > 0 {
		return name[:i]
	}
	return name
}
