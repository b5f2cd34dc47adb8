// Package fleetapi defines the answers of /api/v1, and merges the answers of several replicas (their parts) into one.
// Its functions use their arguments only.
//
// Owns: the schema, the words of states, and the order of windows.
// Reads: nothing.
// Never: asks a replica; decides what a caller may see.
package fleetapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Root is the path of the API. Schema names the form of its answers; fields may be added without a new name.
const (
	Root   = "/api/v1/"
	Schema = "navarch.io/v1"
)

// Answer is an answer of the API. The Merge functions set Sums, Items and Next; the HTTP handler sets the other fields.
type Answer[T any] struct {
	Schema string `json:"schema"`
	// Revision is a revision of the store that all replicas in the answer have planned. 0: no replica has planned any.
	Revision int64 `json:"revision"`
	// Partial names the replicas that are not in the answer; empty: the answer is complete.
	Partial []Missing `json:"partial"`
	Sums    *Sums     `json:"sums,omitempty"` // of all selected proxies, also those outside the window; nil: not counted
	Items   []T       `json:"items"`
	Next    string    `json:"next,omitempty"` // parameter continue for the next window; empty: this is the last one, or limit is 0
}

// Missing is a replica that is not in an answer.
type Missing struct {
	Replica string `json:"replica"`
	Reason  string `json:"reason"`
	// Unable: this replica cannot query the other one, although it may run. The other replica's version is older, or
	// one of the two has no certificate that proves its identity. The other replica may answer clients directly.
	Unable bool `json:"unable,omitempty"`
	// Last are the sums of all proxies of the missing replica, as its record in etcd has them; nil: unknown, or
	// hidden from this caller.
	Last *Last `json:"last,omitempty"`
}

// From is the part of one replica in an answer.
type From[P any] struct {
	Replica string
	Part    P
}

// States of a proxy. All but Gone are states of connected proxies.
const (
	InSync   = "in sync"  // the proxy has acknowledged all subscribed types
	Behind   = "behind"   // the proxy has not yet acknowledged a subscribed type
	Refusing = "refusing" // the proxy refuses a version, or a version is withheld from the proxy
	Gone     = "gone"     // the stream ended in the last ten minutes, and the proxy has not connected again
)

// States are the states of proxies, those of connected proxies first and the worst first.
var States = []string{Refusing, Behind, InSync, Gone}

// Proxy is one item of /api/v1/proxies: a stream of a connected proxy, or a proxy that is Gone. A proxy that
// is Gone has no Revision, Types and Connected, and Since is the time at which its stream ended.
type Proxy struct {
	Proxy     string            `json:"proxy"` // name.namespace
	Node      string            `json:"node"`
	Namespace string            `json:"namespace"`
	Replica   string            `json:"replica"`
	State     string            `json:"state"` // one of States
	Version   string            `json:"version,omitempty"`
	Zone      string            `json:"zone,omitempty"` // region/zone/sub-zone, as far as the proxy states it
	Cluster   string            `json:"cluster,omitempty"`
	Revision  int64             `json:"revision"` // of the newest configuration for the proxy
	Connected time.Time         `json:"connected"`
	Since     time.Time         `json:"since,omitzero"`     // first change not yet acknowledged; zero: no such change
	Types     map[string]string `json:"types"`              // for the noun of each subscribed type: REFUSED, SYNCED ... (inspect)
	Refused   int               `json:"refused,omitempty"`  // resources that it refuses
	Withheld  int               `json:"withheld,omitempty"` // versions of resources that are withheld from it
}

// Sums counts proxies by state, in total and for each value of a property. At most 128 values of a property are listed;
// proxies with further values are counted under Others. The zero value is ready for use. Not safe for concurrent use.
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

// Connected returns the number of connected proxies: all but Gone.
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

// Add counts a connected proxy under its State. A state that is not in States counts nothing.
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

// plus adds another replica's sums.
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

// addTo adds counts to those of a value, or of Others if there is no room for the value.
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
	Limit int    // most items; 0: none
	After string // key of the last item of the window before; empty: from the beginning
}

// Bounds of a window.
const (
	DefaultLimit = 500
	MaxLimit     = 5000
	maxToken     = 4 << 10
)

// ParseWindow parses the parameters limit (DefaultLimit if missing, 0 to MaxLimit) and continue. Errors name the
// parameter; the window is not to be used then.
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
			return w, errors.New("continue: want the value of \"next\" of the answer before")
		}
		w.After = string(key)
	}
	return w, nil
}

// Cut returns the window's items, sorted by key, in a new slice. next is the value of continue for the following
// window; empty: this window is the last, or Limit is 0. Keys must be distinct. The order of items stays unchanged.
func Cut[T any](w Window, items []T, key func(*T) string) (window []T, next string) {
	return cut(w, items, false, key)
}

// cut is Cut for a list that may be incomplete. If more is true, further items exist elsewhere: then next is set even
// if the window has the whole list, unless the window is empty.
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
