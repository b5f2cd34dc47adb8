package relay

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/obs"
)

// Bounds of what is kept of a refusal.
const (
	refusedNames = 10
	refusedText  = 1 << 10 // bytes
)

// Refused is what Envoy has refused of one type, and neither accepted nor lost since.
type Refused struct {
	Type  string   `json:"type"`  // its URL
	Names []string `json:"names"` // of the refused responses' resources, sorted; the first ten
	Total int      `json:"total"` // how many there are
	Error string   `json:"error"` // Envoy's words, of the newest refusal; the first KiB
}

// refusal is what a session knows of a type after Envoy answered a response of it; Total is 0 where nothing is refused any more.
type refusal struct{ Refused }

// refusals says what became of a type's refused resources by an answer; nil: nothing is refused, and nothing was.
func (k *kept) refusals(before int, failure string) effect {
	if len(k.doubt) == 0 && before == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(k.doubt))
	return refusal{Refused{Type: k.url, Names: names[:min(len(names), refusedNames)], Total: len(names), Error: failure}}
}

// failureOf reads the message of a google.rpc.Status of n bytes.
func (c *cursor) failureOf(n int) string {
	text := ""
	_ = c.fields(c.at+n, func(field protowire.Number, n int) error { // what is malformed is a refusal without words
		if field == 2 {
			text = strings.ToValidUTF8(string(c.appendTo(nil, min(n, refusedText))), "")
		}
		return nil
	})
	return text
}

// refusedBy takes over what Envoy's stream of that number refuses of a type. changed: it is not what was known.
func (c *counters) refusedBy(of uint64, now Refused) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != c.opened {
		return false // a stream that another one has followed
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

// listRefused is in the order of types; the caller has the mutex.
func (c *counters) listRefused() (all []Refused) {
	for _, url := range slices.Sorted(maps.Keys(c.refusals)) {
		all = append(all, c.refusals[url])
	}
	return all
}

// refused takes note of a refusal, and logs it where it is another one than before.
func (l *loop) refused(e refusal) {
	if !l.r.stats.refusedBy(l.id, e.Refused) {
		return
	}
	if e.Total == 0 {
		l.r.cfg.Log.Info("Envoy has accepted what it had refused", obs.KeyType, e.Type)
		return
	}
	l.r.cfg.Log.Warn("Envoy refused resources", obs.KeyType, e.Type, obs.KeyName, strings.Join(e.Names, ", "), "total", e.Total, obs.KeyError, e.Error)
}
