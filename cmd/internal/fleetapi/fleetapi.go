// Package fleetapi defines the answers of /api/v1, and merges the answers of several replicas (their parts) into one.
//
// Owns: the form of the answers, the names of proxy states, and the order of items.
// Reads: its arguments only.
// Never: sends a request to a replica; decides what a caller may see.
package fleetapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Root is the path of the API. Schema names the form of its answers. Added fields do not change the name.
const (
	Root   = "/api/v1/"
	Schema = "navarch.io/v1"
)

// Answer is an answer of the API. The Merge functions set Sums, Items and Next; the HTTP handler sets the other fields.
type Answer[T any] struct {
	Schema string `json:"schema"`
	// Revision is the newest revision of the store up to which all replicas in the answer have planned. To plan is to
	// compute the configuration of the replica's proxies. Replicas that have planned no revision do not count. Revision
	// is 0 if no replica has planned a revision.
	Revision int64 `json:"revision"`
	// Partial names the replicas that are not in the answer; empty: the answer is complete.
	Partial []Missing `json:"partial"`
	Sums    *Sums     `json:"sums,omitempty"` // counts of all selected proxies, also of those outside the window; nil: not counted
	Items   []T       `json:"items"`
	Next    string    `json:"next,omitempty"` // the parameter continue for the next window; empty: no more items, or limit is 0
	// Replica is the process that alone is in the answer (alone=true); empty: the answer is about all replicas.
	Replica string `json:"replica,omitempty"`
}

// ServesNone begins the text of status 404 of a process that has no part in an answer, because it serves no proxies. No
// answer lacks such a process.
const ServesNone = "this process serves no proxies"

// Missing is a replica that is not in an answer.
type Missing struct {
	Replica string `json:"replica"`
	Reason  string `json:"reason"`
	// Unable reports that the replica that gives the answer cannot query the missing replica, which may nevertheless
	// run. The missing replica has an older version, or one of the two has no certificate that proves its identity, or
	// the missing process leads and serves no proxies.
	// Clients may get an answer from the missing replica itself.
	Unable bool `json:"unable,omitempty"`
	// Last has the counts of all proxies of the missing replica, from its record in etcd. It is nil if the counts are
	// unknown, or if the caller may not see them.
	Last *Last `json:"last,omitempty"`
}

// From is the part of one replica in an answer.
type From[P any] struct {
	Replica string
	Part    P
}

// States of a proxy. All but Gone are states of connected proxies. A proxy that is both behind and refusing is
// Refusing.
const (
	InSync   = "in sync"  // the proxy has acknowledged the newest versions of all subscribed types
	Behind   = "behind"   // the proxy has not yet acknowledged the newest versions of a subscribed type
	Refusing = "refusing" // the proxy refuses a version, or a version is withheld from the proxy
	Gone     = "gone"     // the stream ended in the last ten minutes, and the proxy has not connected again
)

// States are the states of proxies. The states of connected proxies come first, beginning with the worst.
var States = []string{Refusing, Behind, InSync, Gone}

// Proxy is one item of /api/v1/proxies: a stream of a connected proxy, or a proxy that is Gone. For a proxy that is
// Gone, Revision, Types and Connected are zero, and Since is the time at which its stream ended.
type Proxy struct {
	Proxy     string            `json:"proxy"` // name.namespace
	Node      string            `json:"node"`  // the node's id
	Namespace string            `json:"namespace"`
	Replica   string            `json:"replica"`
	State     string            `json:"state"`             // one of States
	Version   string            `json:"version,omitempty"` // of the proxy's agent
	Zone      string            `json:"zone,omitempty"`    // region/zone/sub-zone, as far as the proxy states it
	Cluster   string            `json:"cluster,omitempty"`
	Revision  int64             `json:"revision"` // revision of the store in the proxy's newest configuration
	Connected time.Time         `json:"connected"`
	Since     time.Time         `json:"since,omitzero"`     // time of the first unacknowledged change; zero: no such change
	Types     map[string]string `json:"types"`              // name of each subscribed type -> its state: SYNCED, PENDING ...
	Refused   int               `json:"refused,omitempty"`  // number of resources that the proxy refuses
	Withheld  int               `json:"withheld,omitempty"` // number of versions that are withheld from the proxy
}

// Sums counts proxies by state, in total and for each value of a property (version, zone, namespace, replica). Each map
// lists at most 128 values. Proxies with further values are counted under Others. The zero value is ready for use. Not
// safe for concurrent use.
type Sums struct {
	Total      Counts            `json:"total"`
	Versions   map[string]Counts `json:"versions,omitempty"`
	Zones      map[string]Counts `json:"zones,omitempty"`
	Namespaces map[string]Counts `json:"namespaces,omitempty"`
	Replicas   map[string]Counts `json:"replicas,omitempty"`
}

// Counts counts proxies by state. Gone are proxies whose stream ended in the last ten minutes and that have not
// connected again.
type Counts struct {
	InSync   int `json:"in_sync"`
	Behind   int `json:"behind"`
	Refusing int `json:"refusing"`
	Gone     int `json:"gone,omitempty"`
}

// Connected returns the number of connected proxies, in sync, behind or refusing.
func (c Counts) Connected() int { return c.InSync + c.Behind + c.Refusing }

// plus returns the sum of two counts.
func (c Counts) plus(o Counts) Counts {
	return Counts{c.InSync + o.InSync, c.Behind + o.Behind, c.Refusing + o.Refusing, c.Gone + o.Gone}
}

// Others is the value under which Sums counts proxies whose own value is not listed.
const Others = "(others)"

// maxValues bounds the listed values of one property. Clients choose versions and zones.
const maxValues = 128

// countsOf returns the counts of one proxy in a state.
func countsOf(state string) (c Counts) {
	switch state {
	case InSync:
		c.InSync = 1
	case Behind:
		c.Behind = 1
	case Refusing:
		c.Refusing = 1
	}
	return c
}

// Add counts a connected proxy under its State, in the total and for its properties. For a State that is Gone or
// unknown it adds 0.
func (s *Sums) Add(p *Proxy) { s.count(p, countsOf(p.State)) }

// AddGone counts a proxy as Gone, whatever its State is.
func (s *Sums) AddGone(p *Proxy) { s.count(p, Counts{Gone: 1}) }

func (s *Sums) count(p *Proxy, c Counts) {
	s.Total = s.Total.plus(c)
	addTo(&s.Versions, p.Version, c)
	addTo(&s.Zones, p.Zone, c)
	addTo(&s.Namespaces, p.Namespace, c)
	addTo(&s.Replicas, p.Replica, c)
}

// plus adds the sums of another replica.
func (s *Sums) plus(o *Sums) {
	s.Total = s.Total.plus(o.Total)
	for _, pair := range []struct {
		into *map[string]Counts
		from map[string]Counts
	}{{&s.Versions, o.Versions}, {&s.Zones, o.Zones}, {&s.Namespaces, o.Namespaces}, {&s.Replicas, o.Replicas}} {
		for _, value := range slices.Sorted(maps.Keys(pair.from)) {
			addTo(pair.into, value, pair.from[value])
		}
	}
}

// addTo adds c to the counts of a value. If the map is full and does not have the value, it adds c to the counts of
// Others.
func addTo(m *map[string]Counts, value string, c Counts) {
	if *m == nil {
		*m = map[string]Counts{}
	}
	if _, known := (*m)[value]; !known && len(*m) >= maxValues {
		value = Others
	}
	(*m)[value] = (*m)[value].plus(c)
}

// Window selects consecutive items of a sorted list.
type Window struct {
	Limit int    // greatest number of items, never negative; 0: the window is empty
	After string // key of the last item of the previous window; empty: from the beginning
}

// Everything is a window of the whole list.
var Everything = Window{Limit: math.MaxInt}

// Bounds of a window.
const (
	DefaultLimit = 500     // items, without the parameter limit
	MaxLimit     = 5000    // items
	maxToken     = 4 << 10 // bytes of the parameter continue
)

// ParseWindow parses the parameters limit (0 to MaxLimit; DefaultLimit if missing or empty) and continue. It fails if
// limit is not a number in the range, or if continue is not base64 or exceeds 4 KiB. The error names the parameter.
// After an error, the window is not to be used.
func ParseWindow(q url.Values) (w Window, err error) {
	w.Limit = DefaultLimit
	if text := q.Get("limit"); text != "" {
		if w.Limit, err = strconv.Atoi(text); err != nil || w.Limit < 0 || w.Limit > MaxLimit {
			return w, fmt.Errorf("limit=%.20q: want a number from 0 to %d", text, MaxLimit)
		}
	}
	if text := q.Get("continue"); text != "" {
		key, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(text) > maxToken {
			return w, errors.New("continue: want the value of \"next\" of the previous answer")
		}
		w.After = string(key)
	}
	return w, nil
}

// Cut sorts the items by key, and returns those in the window w in a new slice, which is never nil. The result next is
// the parameter continue for the following window. It is empty if this window is the last, or if Limit is 0. Keys must
// be distinct. The slice items stays unchanged.
func Cut[T any](w Window, items []T, key func(*T) string) (window []T, next string) {
	return cut(w, items, false, key)
}

// cut is Cut for a list that may be incomplete. If the argument more is set, further items exist after those of the
// list. In this case next is set even if the window has the whole list, unless the window is empty.
func cut[T any](w Window, items []T, more bool, key func(*T) string) (window []T, next string) {
	type keyed struct {
		key string
		at  int
	}
	keys := make([]keyed, 0, len(items))
	for i := range items {
		if k := key(&items[i]); k > w.After || w.After == "" {
			keys = append(keys, keyed{k, i})
		}
	}
	slices.SortFunc(keys, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	if more = more || len(keys) > w.Limit; len(keys) > w.Limit {
		keys = keys[:w.Limit]
	}
	window = make([]T, len(keys))
	for i, k := range keys {
		window[i] = items[k.at]
	}
	if more && len(keys) > 0 {
		next = base64.RawURLEncoding.EncodeToString([]byte(keys[len(keys)-1].key))
	}
	return window, next
}
