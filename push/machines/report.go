package machines

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// These constants limit the reports.
const (
	lease     = 30 * time.Second // life of a report after its replica has ended or lost the connection to etcd
	writeTime = 5 * time.Second  // maximum duration of one write
	writes    = 100              // maximum number of writes per second, and per call of pending
)

// Run writes the reports of this replica's machines to store until ctx ends. At the end it deletes the reports, if
// store answers within a second, and returns nil. The parameter changes is a subscription to changes of the
// configuration (mirror.Mirror.Subscribe). From these changes Run notices WorkloadGroups that appear or disappear, and
// Pods and Services that get a machine's address. Failed writes are logged and repeated. An error means that store
// cannot follow the folder of reports. Run must be called only once.
func (r *Registry) Run(ctx context.Context, store *kv.Store, changes *loop.Box[mirror.Change]) error {
	folders, err := store.Follow(ctx, machines.Folder)
	if err != nil {
		return err
	}
	others := r.others()
	w := &writer{registry: r, blobs: store.Leased(lease), limit: pace()}
	defer w.blobs.End()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := r.refreshTaken(time.Now())
		wait = min(wait, w.write(ctx))
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-w.blobs.Lost():
			w.blobs.Drop()
			r.forgetWritten()
		case <-r.wake:
		case <-timer.C:
		case folder, open := <-folders:
			if !open {
				return nil // ctx has ended
			}
			r.storeElsewhere(others.Read(folder))
		case <-changes.Ready():
			if c, is := changes.Take(); is {
				r.follow(c)
			}
		}
	}
}

// foreign holds the fields that this process needs of another process's report.
type foreign struct {
	name   machines.Name
	holder machines.Holder
	open   bool // the machine is connected
}

// others returns a reader for the reports of other processes. The reader logs nothing, because the leader logs invalid
// reports.
func (r *Registry) others() *machines.Reports[foreign] {
	of := func(m machines.Machine) foreign { return foreign{m.ID(), m.Holder(), m.Disconnected.IsZero()} }
	return &machines.Reports[foreign]{Of: of, Except: r.process, Log: slog.New(slog.DiscardHandler)}
}

// storeElsewhere stores the identities of the machines that are connected to other processes, by WorkloadEntry.
func (r *Registry) storeElsewhere(reports []foreign) {
	all := make(map[machines.Name][]machines.Holder, len(reports))
	for _, e := range reports {
		if e.open {
			all[e.name] = append(all[e.name], e.holder)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.elsewhere = all
}

// follow handles a change of the configuration. It withholds the report of a machine whose WorkloadGroup is gone or has
// another service account. It resumes the report when the group permits the machine again. It also marks the machines
// whose address may now belong to another object.
func (r *Registry) follow(c mirror.Change) {
	r.markEdited(c.Edits)
	touched := false
	for _, e := range c.Edits {
		touched = touched || e.Key().Kind == model.KindWorkloadGroup
	}
	if !touched {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.known.each() {
		if m.report.Group == "" {
			continue
		}
		report, err := m.claim.report(c.New)
		if was := m.withheld; err == nil && was && report.ID() == m.report.ID() {
			report.Replica, report.Connected, report.Disconnected, report.Taken = m.report.Replica, m.report.Connected, m.report.Disconnected,
				m.report.Taken
			r.known.put(report)
		}
		m.withheld = err != nil
	}
	r.changed()
}

// forgetWritten records that etcd has no reports of this process, because their lease is lost.
func (r *Registry) forgetWritten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.known.each() {
		m.written = nil
	}
}

// writer writes the registry's reports to etcd. One goroutine uses it.
type writer struct {
	registry *Registry
	blobs    *kv.Leased
	limit    *rate.Limiter
	failing  bool
}

// pace returns the rate limit for the writes of one replica. It does not depend on the number of machines.
func pace() *rate.Limiter { return rate.NewLimiter(writes, writes) }

// change is one report to write or delete.
type change struct {
	machine *machine
	path    string
	raw     []byte // nil: delete the report
	turn    int    // number of changes of the same service account before this one
}

// write writes the changed reports, and returns the time after which it must be called again if nothing else happens.
func (w *writer) write(ctx context.Context) time.Duration {
	changes, wait := w.registry.pending(time.Now())
	for _, c := range changes {
		if w.limit.Wait(ctx) != nil {
			return wait
		}
		if err := w.put(ctx, c); err != nil {
			if ctx.Err() == nil && !w.failing {
				w.registry.Log.Warn("machines that are connected here cannot be reported to the leader, trying again", obs.KeyError, err)
			}
			w.failing = true
			return time.Second
		}
	}
	if w.failing && len(changes) > 0 {
		w.failing = false
		w.registry.Log.Info("machines are reported to the leader again")
	}
	return wait
}

// put writes or deletes one report, and records the written content. If the report changes during the write, pending
// therefore returns it again.
func (w *writer) put(ctx context.Context, c change) (err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if c.raw == nil {
		err = w.blobs.Delete(ctx, c.path)
	} else {
		err = w.blobs.Put(ctx, c.path, c.raw)
	}
	if err == nil {
		w.registry.mu.Lock()
		c.machine.written = c.raw
		w.registry.mu.Unlock()
	}
	return err
}

// pending returns the next reports to write or delete, and the time after which it must be called again if nothing else
// happens. It drops machines that left more than Config.Grace ago and whose report is deleted. Service accounts take
// turns in the result. Many changes of one account therefore do not delay another account.
func (r *Registry) pending(now time.Time) (changes []change, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = time.Hour
	for name, m := range r.known.each() {
		left := time.Duration(1)
		if len(m.open) == 0 {
			if left = r.Grace - now.Sub(m.report.Disconnected); left > 0 {
				wait = min(wait, left)
			}
		}
		if left <= 0 && m.written == nil {
			r.known.drop(name)
			continue
		}
		later := m.updateConnection(now, left <= 0, min(ConnectionEvery, r.Grace/2))
		if later > 0 {
			wait = min(wait, later)
		}
		if later == 0 || m.health != nil { // else keep the health of the reported connection
			if due := m.updateHealth(now); due > 0 {
				wait = min(wait, due)
			}
		}
		var raw []byte
		if !m.reported.over && !m.withheld {
			report := m.report
			report.Connected, report.Disconnected, report.Health = m.reported.connected, m.reported.disconnected, m.shown
			raw, _ = report.Encode() // after an error raw is nil, so the report is deleted
		}
		if m.reported.over {
			wait = 0 // the next call drops the machine
		}
		if !bytes.Equal(raw, m.written) {
			changes = append(changes, change{machine: m, path: m.report.Path(r.process), raw: raw})
		}
	}
	if changes = inTurns(changes); len(changes) > writes {
		changes, wait = changes[:writes], 0
	}
	return changes, wait
}

// inTurns sorts changes: the first change of each service account, then the second change of each account, and so on.
func inTurns(changes []change) []change {
	before := map[account]int{}
	for i := range changes {
		of := accountOf(changes[i].machine.report)
		changes[i].turn = before[of]
		before[of]++
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.turn, b.turn) })
	return changes
}

// updateConnection updates the reported connection, or returns the time until it may change. The parameter interval is
// the minimum time between two updates. The parameter over reports whether Config.Grace has passed since the machine
// left.
func (m *machine) updateConnection(now time.Time, over bool, interval time.Duration) (later time.Duration) {
	is := connection{m.report.Connected, m.report.Disconnected, over}
	if is == m.reported {
		return 0
	}
	if later = interval - now.Sub(m.reportedAt); later > 0 && !m.reportedAt.IsZero() {
		return later
	}
	m.reported, m.reportedAt = is, now
	return 0
}

// updateHealth updates the reported health, or returns the time until it may change.
func (m *machine) updateHealth(now time.Time) (due time.Duration) {
	if m.health == m.shown {
		return 0
	}
	if m.health != nil && m.shown != nil && m.health.Healthy == m.shown.Healthy && m.health.Message == m.shown.Message {
		return 0
	}
	if due = HealthEvery - now.Sub(m.shownAt); due > 0 && m.health != nil && !m.shownAt.IsZero() {
		return due
	}
	if m.health != nil {
		m.shownAt = now
	}
	m.shown = m.health
	return 0
}
