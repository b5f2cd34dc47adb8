package relay

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/obs"
)

// Bounds of a stored refusal: number of names, and length of the error message.
const (
	refusedNames = 10
	refusedText  = 1 << 10 // bytes
)

// Refused lists the resources of one type that Envoy has refused on its newest stream. A resource leaves the list when
// Envoy accepts a later response that contains or removes it. It also leaves the list when Envoy unsubscribes from it,
// except under a wildcard subscription.
type Refused struct {
	Type  string   `json:"type"`  // type URL
	Names []string `json:"names"` // names of the refused resources, sorted; at most the first ten
	Total int      `json:"total"` // number of refused resources
	Error string   `json:"error"` // Envoy's newest error message for the type, at most its first KiB; may be empty
}

// refusal has the refused resources of one type after an answer (ACK or NACK) of Envoy. If Total is 0, Envoy no longer
// refuses resources of the type.
type refusal struct{ Refused }

// refusals returns the refused resources of a type after an answer of Envoy. The parameter before is the number of
// refused resources before the answer. The result is nil if no resource was refused before the answer and no resource
// is refused after it. The parameter failure is Envoy's error message. It is empty if Envoy has accepted the response,
// or has sent no message.
func (k *typeState) refusals(before int, failure string) effect {
	if len(k.doubt) == 0 && before == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(k.doubt))
	return refusal{Refused{Type: k.url, Names: names[:min(len(names), refusedNames)], Total: len(names), Error: failure}}
}

// record applies a request of Envoy to the mirror (the copy of Envoy's state), and reports changed refusals. It returns
// the response that the request answers, or nil if the request answers no response in flight.
func (s *session) record(now time.Time, e fromEnvoy) *sent {
	if e.err != nil {
		return nil
	}
	before := 0
	if k := s.mirror.find(e.head.typeURL); k != nil {
		before = len(k.doubt)
	}
	answered := s.mirror.request(e.head, now)
	k := s.mirror.find(e.head.typeURL)
	if refused := k.refusals(before, e.head.failure); refused != nil && (answered != nil || len(k.doubt) != before) {
		s.do(refused)
	}
	return answered
}

// failureOf reads a google.rpc.Status of n bytes, and returns its message, cut to refusedText bytes.
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

// refusedBy stores the refusals of a type, and reports whether they changed. The parameter streamID is the number of
// Envoy's stream. Refusals on a stream that is not Envoy's newest are ignored.
func (c *counters) refusedBy(streamID uint64, now Refused) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if streamID != c.opened {
		return false // Envoy has opened another stream since
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

// listRefused returns the refusals, sorted by type. The caller holds the mutex.
func (c *counters) listRefused() (all []Refused) {
	for _, url := range slices.Sorted(maps.Keys(c.refusals)) {
		all = append(all, c.refusals[url])
	}
	return all
}

// refused records a refusal, and logs it if it differs from the previous one.
func (l *loop) refused(e refusal) {
	if !l.r.stats.refusedBy(l.id, e.Refused) {
		return
	}
	if e.Total == 0 {
		l.r.cfg.Log.Info("Envoy no longer refuses resources of a type", obs.KeyType, e.Type)
		return
	}
	l.r.cfg.Log.Warn("Envoy refused resources", obs.KeyType, e.Type,
		obs.KeyName, strings.Join(e.Names, ", "), "total", e.Total, obs.KeyError, e.Error)
}
