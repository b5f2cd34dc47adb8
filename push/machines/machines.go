// Package machines registers machines that ask for it: a proxy whose node names a WorkloadGroup (AUTO_REGISTER_GROUP) gets a WorkloadEntry, and
// one whose node names a WorkloadEntry (WORKLOAD_ENTRY) has its health kept there. This is the replica's half: who may register, what the entry
// is, and the report to the leader, who writes it (store/machines).
//
// Owns: which machines are connected to this replica, and what of them is reported in registrations/.  Reads: the proved identity and its
// credential, the node, the newest snapshot, what other replicas report.  Never: takes from a node what decides which traffic a machine gets, but its
// address; writes WorkloadEntries.
package machines

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// HealthEvery is the least time between two reports of one machine's health: what changes faster is reported once, as it is then. ConnectionEvery is
// that of its connection, but for the first one: half of the grace where that is less, so that a machine that is back within the grace is reported
// within it.
const (
	HealthEvery     = 5 * time.Second
	ConnectionEvery = 5 * time.Second
)

// Config is what New needs.
type Config struct {
	Replica  string // its name, in the fleet
	Snapshot func() *mirror.Snapshot
	Grace    time.Duration // for how long a machine that left is reported as disconnected; 0: machines.DefaultGrace
	Log      *slog.Logger  // nil: slog's default
}

// Registry is the machines of one replica. Its methods may be called from any goroutine; a nil one registers nobody.
type Registry struct {
	Config
	process string        // this process, in the paths of its reports
	wake    chan struct{} // one place: there is something to report

	mu        sync.Mutex // guards what follows; nothing blocks under it
	known     table
	addresses addresses                           // who has which address by the configuration
	elsewhere map[machines.Name][]machines.Holder // who is connected for which entry to other replicas
	doubted   map[machines.Name]bool              // who may have an address that is somebody else's by now
}

// machine is one that is connected, or was until a grace ago.
type machine struct {
	claim      claim
	report     machines.Machine // as it should be in etcd, but for the health, and what is reported later; its name, service account and address are table's
	open       []*Connection    // the newest last
	reported   connection       // what is reported of it
	reportedAt time.Time
	health     *machines.Health // that its agent said last
	shown      *machines.Health // that is reported
	shownAt    time.Time
	withheld   bool   // its group is not there any more, or not for it
	written    []byte // what is in etcd; nil: nothing
}

// connection is what is reported of one.
type connection struct {
	connected, disconnected time.Time
	over                    bool // the grace has passed since it ended: nothing is
}

// New makes one without machines.
func New(c Config) *Registry {
	c.Grace = cmp.Or(c.Grace, machines.DefaultGrace)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	// What a process of the same name reported before it was killed stands until its lease ends.
	return &Registry{Config: c, process: c.Replica + "-" + rand.Text()[:8], wake: make(chan struct{}, 1), known: newTable(), doubted: map[machines.Name]bool{}}
}

// Connection is one stream of a machine.
type Connection struct {
	registry *Registry
	name     machines.Name
	at       time.Time
}

// Register lets a machine have its WorkloadEntry, for as long as the connection stays, where its node asks for that; nil: it does not.
// credential tells the caller of a stream from others of its identity, as attest.Caller.Credential does; empty: nothing does. raw is the encoded node.
// Errors are gRPC statuses: PermissionDenied where the proof does not allow it, FailedPrecondition where
// the group or the entry is not there or the address is another's, ResourceExhausted.
func (r *Registry) Register(node view.Node, credential string, raw []byte) (*Connection, error) {
	if r == nil || node.Metadata[groupKey] == "" && node.Metadata[entryKey] == "" {
		return nil, nil
	}
	connection, result, err := r.register(node, credential, raw)
	obs.Registrations.WithLabelValues(result).Inc()
	return connection, err
}

// The results of registrations, as their metric has them.
const (
	registered  = "registered"
	ofIdentity  = "identity" // the proof does not allow it
	ofAddress   = "address"  // none that can be used, or one of somebody else
	ofGroup     = "group"    // the WorkloadGroup, or WorkloadEntry, is not there, or no entry can be made of it
	ofTheNumber = "number"   // the service account has too many, or the credential
)

// refused is why a machine was refused, where it is not because of its identity or its number.
func refused(err error, otherwise string) string {
	switch status.Code(err) {
	case codes.PermissionDenied:
		return ofIdentity
	case codes.ResourceExhausted:
		return ofTheNumber
	}
	return otherwise
}

func (r *Registry) register(node view.Node, credential string, raw []byte) (*Connection, string, error) {
	snapshot, now := r.Snapshot(), time.Now()
	c, err := claimOf(node, raw)
	if err != nil {
		return nil, refused(err, ofAddress), err
	}
	c.credential = digest(credential)
	report, err := c.draw(snapshot)
	if err != nil {
		return nil, refused(err, ofGroup), err
	}
	report.Replica, report.Connected = r.Replica, now
	if _, err := report.Encode(); err != nil {
		return nil, ofGroup, status.Errorf(codes.FailedPrecondition, "WorkloadGroup %s/%s: no WorkloadEntry is made of it: %v", c.namespace, c.group, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.free(snapshot, report, now); err != nil {
		return nil, refused(err, ofAddress), err
	}
	m := r.known.put(report)
	r.doubted[report.ID()] = report.Spec != nil && !r.addresses.isOf(snapshot)
	m.claim, m.withheld, m.health = c, false, nil
	connection := &Connection{registry: r, name: report.ID(), at: now}
	m.open = append(m.open, connection)
	r.changed()
	return connection, registered, nil
}

// digest is of a caller's credential: the same text on every replica, however long what it has shown is.
func digest(credential string) string {
	if credential == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:16])
}

// free says why a machine may not be registered beside those that are. The lock is held.
func (r *Registry) free(snapshot *mirror.Snapshot, report machines.Machine, now time.Time) error {
	of, by := r.known.accounts[accountOf(report)], r.known.credentials[credentialOf(report)]
	if err := r.held(report); err != nil {
		return err
	}
	if own := r.known.get(report.ID()); own != nil {
		if own.report.Account != report.Account {
			return status.Errorf(codes.PermissionDenied, "WorkloadEntry %s is of a machine of service account %q, not %q", report.ID(), own.report.Account, report.Account)
		}
		if of--; own.report.Credential == report.Credential {
			by--
		}
	}
	if report.Spec != nil {
		if name, held := r.known.holder(report); held {
			return taken(report, "WorkloadEntry "+name.String())
		}
	}
	if full := machines.Full(of, by); full != "" {
		return status.Errorf(codes.ResourceExhausted, "service account %s/%s %s", report.Namespace, report.Account, full)
	}
	if report.Spec == nil {
		return nil
	}
	return r.addresses.free(snapshot, report, now)
}

// held says why a machine may not take over the entry of one that is connected here or to another replica: it is another one, since it has not
// shown the same credential. With the same it is a reconnect. The lock is held.
func (r *Registry) held(report machines.Machine) error {
	holders := r.elsewhere[report.ID()]
	if own := r.known.get(report.ID()); own != nil && len(own.open) > 0 {
		holders = []machines.Holder{own.report.Holder()}
	}
	if len(holders) == 0 || slices.ContainsFunc(holders, report.Holder().Is) {
		return nil
	}
	return status.Error(codes.FailedPrecondition, machines.Held(report.ID(), holders[0]))
}

// changed has the reports looked at.
func (r *Registry) changed() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Health takes in what the machine's agent says of it. Of a machine with several connections the newest counts.
func (c *Connection) Health(healthy bool, message string) {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known.get(c.name)
	if m == nil || len(m.open) == 0 || m.open[len(m.open)-1] != c {
		return
	}
	m.health = &machines.Health{Healthy: healthy, At: time.Now()}
	if !healthy {
		m.health.Message = cut(message)
	}
	r.changed()
}

// cut is as much of what an agent says as is kept, in memory of its own.
func cut(text string) string {
	text = strings.ToValidUTF8(strings.Clone(text[:min(len(text), machines.MaxMessage+utf8.UTFMax)]), "")
	for len(text) > machines.MaxMessage {
		_, size := utf8.DecodeLastRuneInString(text[:machines.MaxMessage+1])
		text = text[:machines.MaxMessage+1-max(size, 1)]
	}
	return text
}

// Leave ends the connection, once. The entry stays while the machine has another one.
func (c *Connection) Leave() {
	if c == nil {
		return
	}
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known.get(c.name)
	if m == nil || !slices.Contains(m.open, c) {
		return
	}
	newest := m.open[len(m.open)-1] == c
	m.open = slices.DeleteFunc(m.open, func(o *Connection) bool { return o == c })
	switch {
	case len(m.open) == 0:
		m.report.Disconnected = time.Now()
	case newest: // the one before goes on
		m.report.Connected, m.health = m.open[len(m.open)-1].at, nil
	}
	r.changed()
}

// Connected is how many machines are connected to this replica.
func (r *Registry) Connected() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.known.each() {
		if len(m.open) > 0 {
			n++
		}
	}
	return n
}
