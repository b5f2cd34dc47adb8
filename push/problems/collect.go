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

// Found is a problem with the number of replicas that found it.
type Found struct {
	model.Problem
	// Replicas is the number of replicas whose lists contain the problem, at least 1. The list of a killed replica
	// counts for up to one minute.
	Replicas int
	First    string // name of one of these replicas
}

// Collector reads the lists of problems that all replicas write. The leader runs it. Its methods are safe for
// concurrent use, except that only one Run may be active at a time.
type Collector struct {
	log  *slog.Logger
	now  atomic.Pointer[collected]
	seen map[string]parsed // by path; owned by Run
}

// collected is the result of merging all lists.
type collected struct {
	all  []Found
	more int // number of problems that replicas left out
}

// parsed is the list of one replica.
type parsed struct {
	revision int64
	found    []model.Problem
	more     int // number of problems that the replica left out
}

// NewCollector returns a Collector without lists. If log is nil, it uses slog.Default().
func NewCollector(log *slog.Logger) *Collector {
	if log == nil {
		log = slog.Default()
	}
	return &Collector{log: log}
}

// All returns the problems that replicas found, each once, sorted by object. The result more is the number of problems
// that are missing, because of the replicas' limits or because this build cannot decode them. The slice is shared and
// read-only. Before the first read, and while Run does not run, the results are nil and 0.
func (c *Collector) All() (all []Found, more int) {
	if now := c.now.Load(); now != nil {
		return now.all, now.more
	}
	return nil, 0
}

// Collected reports whether the lists were read at least once since Run began. While Run does not run, it returns
// false.
func (c *Collector) Collected() bool { return c.now.Load() != nil }

// Run reads the lists in store, and reads them again when they change, until ctx ends. Then it drops the lists and
// returns nil. The caller runs it while this process is the leader. An error means that store cannot watch the lists'
// folder, which is a fault of this build. Lists that cannot be decoded are logged and count as empty.
func (c *Collector) Run(ctx context.Context, store *kv.Store) error {
	folders, err := store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	defer c.now.Store(nil)
	c.seen = map[string]parsed{}
	for f := range folders {
		c.readFolder(f)
	}
	return nil
}

// readFolder decodes the changed lists of a folder, and publishes the merged result. A list that does not decode is
// logged and counts as empty.
func (c *Collector) readFolder(f kv.Folder) {
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

// merge returns each problem of the lists once, sorted by object.
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

// replicaOf returns the name of the replica that writes a list. The name is the path below the folder without the
// suffix that identifies the process.
func replicaOf(path string) string {
	name := strings.TrimPrefix(path, folder)
	if i := strings.LastIndex(name, "-"); i > 0 {
		return name[:i]
	}
	return name
}
