// Package events decides which Events of type Warning Kubernetes shows for refused objects, and for held objects (whose
// newest state waits). An object has at most one Event for each reason. A changed message replaces the previous
// message, and a repeated message changes nothing.
//
// Owns: the present warnings, and the bounds of their number, size and rate. Reads: nothing. Never: writes to
// Kubernetes (store/status does); blocks its callers.
package events

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/object"
)

// Reason is the reason of an Event: a word in CamelCase.
type Reason string

// The reasons.
const (
	Refused Reason = "Refused"      // the object, or a part of it, does not apply; the last good version stays in use
	Held    Reason = "Held"         // the object's removal or newest version waits, for some time or for an operator
	Omitted Reason = "MoreWarnings" // the object is a Namespace: further warnings in this namespace are left out
)

// The bounds. Each namespace has a budget of MostOfNamespace added or changed messages. Every Interval restores one
// message of a used budget.
const (
	MostOfNamespace = 50               // warnings of one namespace at a time, without that of reason Omitted
	Most            = 2000             // warnings of all namespaces; twice as many with those of reason Omitted
	MaxMessage      = 512              // bytes of a message
	Interval        = 10 * time.Second // time in which a budget regains one message
)

// old is the age above which a warning may be dropped in favour of another warning. By default Kubernetes has deleted
// the Event of the dropped warning by then.
const old = time.Hour

// Object identifies the object that a warning is about. Only ID is required. `kubectl describe` finds Events by UID.
type Object struct {
	ID         object.ID
	Version    string // version of the object's API, such as "v1"
	UID        string // metadata.uid
	Generation int64  // metadata.generation
}

// Warning is one warning, to be written as an Event of Kubernetes.
type Warning struct {
	Object
	Namespace string // namespace of the Event
	Reason    Reason
	Message   string
	Since     time.Time // time at which the warning was added, or its message or UID last changed
}

// key identifies a warning.
type key struct {
	id     object.ID
	reason Reason
}

// Events contains the warnings of one process. It is safe for concurrent use. All methods may be called on a nil
// *Events, which has no warnings.
type Events struct {
	home string

	mu      sync.Mutex // leaf mutex; guards the fields below
	all     map[key]*Warning
	spaces  map[string]*space
	version uint64
}

// space has the budget of one namespace, and the number of its warnings.
type space struct {
	pace  *rate.Limiter // budget of added or changed messages
	count int           // warnings, without that of reason Omitted
}

// New returns an empty Events. The parameter home is the control plane's own namespace. Events of objects without a
// namespace are in this namespace, too.
func New(home string) *Events {
	return &Events{home: home, all: map[key]*Warning{}, spaces: map[string]*space{}}
}

// Warn adds a warning about an object, or replaces its message. The warning stays until Over or Reset. A warning that
// is older than an hour may also be dropped to make room for a new one. The message is cut to MaxMessage bytes.
//
// If a bound is exceeded, the namespace gets a warning of reason Omitted instead, at most once an hour. A previous
// warning about the object then stays unchanged. Warn ignores objects outside of the config cluster.
func (e *Events) Warn(of Object, reason Reason, message string) {
	if e == nil || of.ID.Origin.Cluster() != "" {
		return
	}
	message = cut(message)
	e.mu.Lock()
	defer e.mu.Unlock()
	k, now := key{of.ID, reason}, time.Now()
	was := e.all[k]
	if was != nil && was.Message == message && was.UID == of.UID {
		return
	}
	namespace := cmp.Or(of.ID.Namespace, e.home)
	s := e.space(namespace, now)
	if !s.pace.AllowN(now, 1) || was == nil && !e.room(namespace, s, now) {
		e.omitted(namespace, now)
		return
	}
	if was == nil {
		s.count++
	}
	e.put(k, &Warning{Object: of, Namespace: namespace, Reason: reason, Message: message, Since: now})
}

// Over removes the warning with this reason about an object, if there is one. The Event stays until Kubernetes deletes
// it.
func (e *Events) Over(id object.ID, reason Reason) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remove(key{id, reason})
}

// Reset removes all warnings, and restores the budgets of all namespaces.
func (e *Events) Reset() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.all)
	clear(e.spaces)
	e.version++
}

// Present returns copies of all warnings, in no order. Without warnings, the result is nil. The result version grows
// with each change of the warnings.
func (e *Events) Present() (all []Warning, version uint64) {
	if e == nil {
		return nil, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.all {
		all = append(all, *w)
	}
	return all, e.version
}

// put adds or replaces a warning. The callers of put, remove, space, room and omitted hold the mutex.
func (e *Events) put(k key, w *Warning) {
	e.all[k] = w
	e.version++
}

func (e *Events) remove(k key) {
	w := e.all[k]
	if w == nil {
		return
	}
	if k.reason != Omitted {
		e.spaces[w.Namespace].count--
	}
	delete(e.all, k)
	e.version++
}

// space returns the space of a namespace. If it must create one and there are many, it first drops the spaces that have
// no warnings and a full budget.
func (e *Events) space(namespace string, now time.Time) *space {
	s := e.spaces[namespace]
	if s != nil {
		return s
	}
	if len(e.spaces) >= Most {
		for name, other := range e.spaces {
			if other.count == 0 && other.pace.TokensAt(now) >= MostOfNamespace {
				e.remove(key{namespaceID(name), Omitted})
				delete(e.spaces, name)
			}
		}
	}
	s = &space{pace: rate.NewLimiter(rate.Every(Interval), MostOfNamespace)}
	e.spaces[namespace] = s
	return s
}

// room reports whether a namespace may have one more warning. If the namespace is full, room tries to drop one of its
// old warnings. If only all namespaces together are full, room tries to drop an old warning of any namespace.
func (e *Events) room(namespace string, s *space, now time.Time) bool {
	if s.count < MostOfNamespace && len(e.all) < Most {
		return true
	}
	for k, w := range e.all {
		if (w.Namespace == namespace || s.count < MostOfNamespace) && k.reason != Omitted && now.Sub(w.Since) > old {
			e.remove(k)
			return true
		}
	}
	return false
}

// omitted adds a warning of reason Omitted to a namespace, or renews it after an hour.
func (e *Events) omitted(namespace string, now time.Time) {
	k := key{namespaceID(namespace), Omitted}
	if was := e.all[k]; was == nil && len(e.all) < 2*Most || was != nil && now.Sub(was.Since) > old {
		e.put(k, &Warning{Object: Object{ID: k.id, Version: "v1"}, Namespace: namespace, Reason: Omitted, Since: now,
			Message: "more objects of this namespace are refused or held than are shown as Events; navarchd's page /debug/problems lists them"})
	}
}

func namespaceID(name string) object.ID { return object.ID{Kind: "Namespace", Name: name} }

func cut(text string) string {
	if len(text) <= MaxMessage {
		return text
	}
	return strings.ToValidUTF8(strings.Clone(text[:MaxMessage-3]), "") + "..."
}
