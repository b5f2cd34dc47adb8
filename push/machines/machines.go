// Package machines registers machines (workloads outside of Kubernetes) at their own request. If the Envoy node of a
// machine's proxy names a WorkloadGroup (metadata AUTO_REGISTER_GROUP), the leader creates a WorkloadEntry. If the node
// names a WorkloadEntry (metadata WORKLOAD_ENTRY), the leader stores the machine's health in that entry. This package
// runs in each replica (process of the control plane). It decides which machines may register, computes their entries,
// and reports the machines to the leader. The leader writes the entries (store/machines).
//
// Owns: the list of machines connected to this replica, and this replica's reports in etcd (registrations/).  Reads:
// each proxy's proven identity, credential and node; the newest snapshot; the reports of other replicas.  Never: takes
// labels or the service account of an entry from the node; writes WorkloadEntries.
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

// These are the minimum times between two reports about one machine. If its state changes several times in between,
// only the last state is reported.
const (
	HealthEvery = 5 * time.Second // minimum time between two reports of one machine's health
	// ConnectionEvery is the minimum time between two reports of one machine's connection. If Config.Grace/2 is
	// shorter, it is the minimum instead. So a machine that returns within Config.Grace is also reported within this
	// time.
	ConnectionEvery = 5 * time.Second
)

// Config holds the settings of a Registry. Replica and Snapshot must be set.
type Config struct {
	Replica  string                  // name of this replica
	Snapshot func() *mirror.Snapshot // returns the newest snapshot of the configuration, never nil
	Grace    time.Duration           // time for which a departed machine is reported as disconnected; 0: 10 s
	Log      *slog.Logger            // nil: slog.Default()
}

// Registry registers the machines of one replica. New creates it. It is safe for concurrent use. Of its methods, only
// Register accepts a nil Registry, and then registers no machine.
type Registry struct {
	Config
	process string        // name of this process in the paths of its reports
	wake    chan struct{} // capacity 1; receives a value when a report may have changed

	mu        sync.Mutex // guards the fields below; never held during blocking calls
	known     table
	addresses addresses                           // the objects of the configuration with each IP address
	elsewhere map[machines.Name][]machines.Holder // identities of machines at other replicas, by entry
	doubted   map[machines.Name]bool              // machines whose address may now belong to another object
}

// machine is the state of a connected machine, or of a machine that left less than Config.Grace ago.
type machine struct {
	claim claim
	// report is the machine's newest state, without its health. The method pending makes the report for etcd from this
	// state, and takes the connection from the field reported. The table counts this state by name, account, credential
	// and address.
	report     machines.Machine
	open       []*Connection // connections, newest last
	reported   connection    // the connection in the report for etcd; it may lag behind
	reportedAt time.Time
	health     *machines.Health // the agent's last report
	shown      *machines.Health // the health in the report for etcd; it may lag behind
	shownAt    time.Time
	withheld   bool   // not reported: its group is gone, or has another service account now
	written    []byte // the report in etcd; nil: no report
}

// connection is the state of a machine's connection in a report.
type connection struct {
	connected, disconnected time.Time
	over                    bool // the grace after disconnected has passed, so the report is deleted
}

// New returns a Registry without machines.
func New(c Config) *Registry {
	c.Grace = cmp.Or(c.Grace, machines.DefaultGrace)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	// The random suffix tells this process from an earlier one, whose reports stay until their lease ends.
	return &Registry{Config: c, process: c.Replica + "-" + rand.Text()[:8], wake: make(chan struct{}, 1), known: newTable(),
		doubted: map[machines.Name]bool{}}
}

// Connection is one xDS stream of a registered machine. Register creates it. Health requires a Connection that is not
// nil.
type Connection struct {
	registry *Registry
	name     machines.Name
	at       time.Time
}

// Register registers the machine of a node until Connection.Leave is called. After Leave, the machine is reported as
// disconnected for Config.Grace. Register returns nil, nil if the node requests no registration, or if r is nil.
// credential distinguishes callers of one identity (attest.Caller.Credential); it may be empty. raw is the encoded node
// (envoy.config.core.v3.Node). The error is a gRPC status:
//   - PermissionDenied: the proven identity does not permit the registration.
//   - FailedPrecondition: the group or the entry does not exist, no entry can be made from the group, another machine
//     is connected with the same entry, or the address is unusable or belongs to another object.
//   - ResourceExhausted: the service account or the credential has too many machines.
func (r *Registry) Register(node view.Node, credential string, raw []byte) (*Connection, error) {
	if r == nil || node.Metadata[groupKey] == "" && node.Metadata[entryKey] == "" {
		return nil, nil
	}
	connection, result, err := r.register(node, credential, raw)
	obs.Registrations.WithLabelValues(result).Inc()
	return connection, err
}

// These are the results that the metric obs.Registrations counts.
const (
	registered  = "registered"
	ofIdentity  = "identity" // the proven identity does not permit the registration
	ofAddress   = "address"  // the address is unusable, or belongs to another object
	ofGroup     = "group"    // the WorkloadGroup or WorkloadEntry does not exist, or no entry can be made from it
	ofTheNumber = "number"   // the service account or the credential has too many machines
)

// refused returns the metric's result for an error. The parameter fallback is the result for errors other than
// PermissionDenied and ResourceExhausted.
func refused(err error, fallback string) string {
	switch status.Code(err) {
	case codes.PermissionDenied:
		return ofIdentity
	case codes.ResourceExhausted:
		return ofTheNumber
	}
	return fallback
}

// register implements Register. It also returns the result for the metric.
func (r *Registry) register(node view.Node, credential string, raw []byte) (*Connection, string, error) {
	snapshot, now := r.Snapshot(), time.Now()
	c, err := claimOf(node, raw)
	if err != nil {
		return nil, refused(err, ofAddress), err
	}
	c.credential = digest(credential)
	report, err := c.report(snapshot)
	if err != nil {
		return nil, refused(err, ofGroup), err
	}
	report.Replica, report.Connected = r.Replica, now
	if _, err := report.Encode(); err != nil {
		return nil, ofGroup, status.Errorf(codes.FailedPrecondition, "WorkloadGroup %s/%s: the WorkloadEntry cannot be made: %v", c.namespace,
			c.group, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.conflict(snapshot, report, now); err != nil {
		return nil, refused(err, ofAddress), err
	}
	m := r.known.put(report)
	r.doubted[report.ID()] = report.Spec != nil && !r.addresses.foundIn(snapshot)
	m.claim, m.withheld, m.health = c, false, nil
	connection := &Connection{registry: r, name: report.ID(), at: now}
	m.open = append(m.open, connection)
	r.changed()
	return connection, registered, nil
}

// digest returns a hash of a caller's credential, of fixed length and equal on every replica. It returns "" for an
// empty credential.
func digest(credential string) string {
	if credential == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:16])
}

// conflict returns an error if other machines, or objects of the configuration, prevent the registration. The caller
// holds r.mu.
func (r *Registry) conflict(snapshot *mirror.Snapshot, report machines.Machine, now time.Time) error {
	of, by := r.known.accounts[accountOf(report)], r.known.credentials[credentialOf(report)]
	if err := r.heldByOther(report); err != nil {
		return err
	}
	if own := r.known.get(report.ID()); own != nil {
		if own.report.Account != report.Account {
			return status.Errorf(codes.PermissionDenied, "WorkloadEntry %s is of a machine of service account %q, not %q", report.ID(),
				own.report.Account, report.Account)
		}
		if of--; own.report.Credential == report.Credential {
			by--
		}
	}
	if report.Spec != nil {
		if name, held := r.known.holder(report); held {
			return addressTaken(report, "WorkloadEntry "+name.String())
		}
	}
	if full := machines.Full(of, by); full != "" {
		return status.Errorf(codes.ResourceExhausted, "service account %s/%s %s", report.Namespace, report.Account, full)
	}
	if report.Spec == nil {
		return nil
	}
	return r.addresses.conflict(snapshot, report, now)
}

// heldByOther returns an error if another machine with the same WorkloadEntry is connected, to this replica or to
// another one. Machines with equal service accounts and credentials count as the same machine. The caller holds r.mu.
func (r *Registry) heldByOther(report machines.Machine) error {
	holders := r.elsewhere[report.ID()]
	if own := r.known.get(report.ID()); own != nil && len(own.open) > 0 {
		holders = []machines.Holder{own.report.Holder()}
	}
	if len(holders) == 0 || slices.ContainsFunc(holders, report.Holder().Is) {
		return nil
	}
	return status.Error(codes.FailedPrecondition, machines.Held(report.ID(), holders[0]))
}

// changed wakes Run, which then writes the changed reports.
func (r *Registry) changed() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Health stores the health that the machine's agent reports. The parameter message states why the machine is unhealthy.
// It is cut to machines.MaxMessage bytes, and ignored if healthy is true. If a machine has several connections, only
// calls on the newest connection have an effect. Health does not block.
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
		m.health.Message = truncate(message)
	}
	r.changed()
}

// truncate returns a copy of an agent's message as valid UTF-8, cut to machines.MaxMessage bytes.
func truncate(text string) string {
	text = strings.ToValidUTF8(strings.Clone(text[:min(len(text), machines.MaxMessage+utf8.UTFMax)]), "")
	for len(text) > machines.MaxMessage {
		_, size := utf8.DecodeLastRuneInString(text[:machines.MaxMessage+1])
		text = text[:machines.MaxMessage+1-max(size, 1)]
	}
	return text
}

// Leave ends the connection. The machine stays registered while it has another connection. Repeated calls, and calls on
// a nil Connection, have no effect.
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
	case newest: // the previous connection continues
		m.report.Connected, m.health = m.open[len(m.open)-1].at, nil
	}
	r.changed()
}

// Connected returns the number of machines that are connected to this replica.
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
