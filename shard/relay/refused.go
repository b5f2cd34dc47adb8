package relay

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/obs"
)

// Bounds of the stored part of a refusal.
const (
	refusedNames = 10
	refusedText  = 1 << 10 // bytes
)

// Refused lists the resources of one type that Envoy refused, and neither accepted nor lost since.
type Refused struct {
	Type  string   `json:"type"`  // type URL
	Names []string `json:"names"` // of the refused responses' resources, sorted; the first ten
	Total int      `json:"total"` // number of the names
	Error string   `json:"error"` // Envoy's message for the newest refusal; the first KiB
}

// refusal is the state of a type's refusals after an answer of Envoy; Total 0: none any more.
type refusal struct{ Refused }

// refusals returns the change of a type's refused resources by an answer; nil: nothing is or was refused.
func (k *typeState) refusals(before int, failure string) effect {
	if len(k.doubt) == 0 && before == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(k.doubt))
	return refusal{Refused{Type: k.url, Names: names[:min(len(names), refusedNames)], Total: len(names), Error: failure}}
}

// failureOf reads the message of a google.rpc.Status of n bytes.
func (c *cursor) failureOf(n int) string {
	text := ""
	_ = c.fields(c.at+n, func(field protowire.Number, n int) error { // a malformed status is a refusal without message
		if field == 2 {
			text = strings.ToValidUTF8(string(c.appendTo(nil, min(n, refusedText))), "")
		}
		return nil
	})
	return text
}

// refusedBy stores the refusals of a type on Envoy's stream of that number, and reports whether they changed.
func (c *counters) refusedBy(of uint64, now Refused) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != c.opened {
		return false // an older stream, which another one has replaced
	}
	before, was := c.refusals[now.Type]
	switch {
	case now.Total == 0:
		delete(c.refusals, now.Type)
	default:
		now.Error = cmp.Or(now.Error, before.Error)
		c.refusals[now.Type] = now
	}
	return was != (now.Total > 0) || !slices.Equal(before.Names, now.Names) || before.Error != now.Error
}

// listRefused returns the refusals sorted by type. The caller holds the mutex.
func (c *counters) listRefused() (all []Refused) {
	for _, url := range slices.Sorted(maps.Keys(c.refusals)) {
		all = append(all, c.refusals[url])
	}
	return all
}

// refused records a refusal, and logs it if it differs from the one before.
func (l *loop) refused(e refusal) {
	if !l.r.stats.refusedBy(l.id, e.Refused) {
		return
	}
	if e.Total == 0 {
		l.r.cfg.Log.Info("Envoy has accepted what it had refused", obs.KeyType, e.Type)
		return
	}
	l.r.cfg.Log.Warn("Envoy refused resources", obs.KeyType, e.Type,
		obs.KeyName, strings.Join(e.Names, ", "), "total", e.Total, obs.KeyError, e.Error)
}
