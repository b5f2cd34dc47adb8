package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/member"
)

// Config has the sources of the answers.
type Config struct {
	Self    string            // name of this process
	Zone    string            // of this process
	Version string            // of this process's build
	Rules   *authz.Authorizer // authorises callers
	Pages   Pages
	Proxies Proxies // nil: the process does not serve proxies
	// Ledger has the deliveries of this process; nil: the process does not serve proxies, or is that of a report.
	Ledger *ledger.Ledger
	// Server knows what the proxies owe; nil: the process does not serve proxies, or is that of a report.
	Server *serve.Server
	// Changes returns the changes in the ledger, newest first; nil: the process does not serve proxies.
	Changes func(sees func(namespace string) bool, all bool) []ledger.Report
	Now     func() time.Time // nil: the clock of this machine
	// Report makes this process's part of a report; nil: the process is that of a report.
	Report func(ctx context.Context, who authz.Caller, want collect.Want) ([]byte, error)
	// Replicas asks the other replicas; nil: this process is alone, as with an embedded etcd.
	Replicas Replicas
	// Members returns the fleet, nil before it is known; the function is nil if the process is alone.
	Members func() []member.Record
	// Describe describes a subject by the proxies of this process; nil: it serves none.
	Describe func(of describe.Query, sees func(namespace string) bool) (describe.Part, error)
	// Fleet has the records of the replicas; nil, as Replicas.
	Fleet *Fleet
	// Objects reports whether the leader has stored an object; nil: this process does not have role ingest.
	Objects Objects
}

// Pages are the pages of a process (debug.Pages), or those in a report.
type Pages interface {
	// Turn waits until a caller may be answered, as debug.Pages.Turn does.
	Turn(ctx context.Context, who authz.Caller, costly bool) (made, read func(), err error)
	// Render makes a page for a caller, who must be one that may see it, and returns its HTTP status and content.
	Render(ctx context.Context, who authz.Caller, path string, q url.Values) (code int, body []byte)
	// PlanBody and Plan are those of debug.Pages.
	PlanBody(ctx context.Context, who authz.Caller, w http.ResponseWriter, r *http.Request) (body []byte, done func(), status int, err error)
	Plan(ctx context.Context, who authz.Caller, body []byte, q url.Values) (report *preview.Report, status int, err error)
	// Problems returns the visible problems that the process reports.
	Problems(sees authz.Visible) []inspect.Problem
}

// Proxies are the proxies of a process (debug.Proxies), or those in a report.
type Proxies interface {
	// Streams returns the visible streams, of a proxy with a node id or name.namespace, or of all if id is empty.
	Streams(sees authz.Visible, id string) []inspect.Stream
	// Departed lists the visible proxies whose streams ended lately.
	Departed(sees func(namespace string) bool) []debug.Left
	// Planned returns the store's revisions that the process serves, and up to which its proxies are notified; 0: none.
	Planned() (serves, notified int64)
	// Connected returns the number of streams.
	Connected() int
	// ConfigCluster returns the name of the config cluster.
	ConfigCluster() string
}

// Replicas asks other replicas (ask.Replicas).
type Replicas interface {
	Ask(ctx context.Context, q ask.Question, wait time.Duration) []ask.Heard
}
