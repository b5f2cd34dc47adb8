package plan

import (
	"log/slog"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/crash"
)

// Config configures a Loop. For a duration with a default, zero means the default. Functions that run in the loop's
// goroutine must not call methods of the Loop that wait for this goroutine.
type Config struct {
	Source  Source     // required
	Pool    *pool.Pool // stores the built resources; if nil, the loop has a pool of its own
	Cluster string     // the name of the config cluster, see Settings
	Opener  Opener     // opens private keys of Secrets that proxies subscribe to; if nil, no private keys are sent
	// Authoriser decides which identities may have private keys; if nil, no private keys are sent. Access sets how long
	// the answers are valid.
	Authoriser access.Authoriser
	Access     access.Settings
	Logger     *slog.Logger // if nil, slog.Default
	// DebounceAfter is PILOT_DEBOUNCE_AFTER (default: 100 ms), and DebounceMax is PILOT_DEBOUNCE_MAX (default: 10 s).
	// Edits of configuration wait at most DebounceAfter after the last edit, and at most DebounceMax after the first
	// edit. If plans take long, they instead wait for a pause after the last plan. The pause is at most 2 s and at most
	// DebounceMax.
	DebounceAfter, DebounceMax time.Duration
	// Coalesce is the minimum time between two plans of the fast path (default: 10 ms).
	Coalesce time.Duration
	// DebounceEndpoints makes edits of endpoints wait like edits of configuration (PILOT_ENABLE_EDS_DEBOUNCE=true).
	DebounceEndpoints bool
	// Planned is called after every plan. The parameter began is the time when the plan began, and edits is the number
	// of its edits. The parameter moved is the number of proxies that Publication.Moved lists. Planned runs in the
	// loop's goroutine, so it must not block (store/watchdog). It may be nil.
	Planned func(revision int64, path Path, began time.Time, edits, moved int)
	// Publishing is called after every plan, before the streams of the affected proxies are notified and before
	// Planned. It runs in the loop's goroutine, so it must not block. It may be nil.
	Publishing func(Publication)
	// Linger is the time for which the view of a departed proxy is kept up to date (default: 10 s). A negative Linger
	// means no time. If the proxies of a scope (a shared outbound configuration) reconnect within Linger, the scope
	// need not be planned again.
	Linger time.Duration
	// CheckEvery is the interval at which one random view is planned from scratch and compared with the plan. The
	// comparison is disabled if CheckEvery is 0 or negative. A difference is logged and counted.
	CheckEvery time.Duration
	Crashes    *crash.Log // records panics; if nil, a log of the loop's own that writes to Logger
	// Room is the maximum estimated memory of all planned configuration in KiB (store/weight). If it is 0, there is no
	// limit. Loop.Resize changes it.
	Room int
}
