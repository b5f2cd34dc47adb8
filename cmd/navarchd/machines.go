package main

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead/promoted"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/status"
)

// registered maintains the WorkloadEntries of registered machines while this process leads: in Kubernetes if the
// configuration comes from a cluster, otherwise as records in the store.
type registered struct {
	leader  *machines.Leader
	entries func() machines.WorkloadEntries // returns the WorkloadEntries for one term
	store   *kv.Store
	origin  origin.Origin
	log     *slog.Logger
}

// newRegistered makes the leader's duties for machines, without sending a request. The result is nil if machines may
// not register themselves (PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION). cluster and writes are nil if all
// configuration comes from files. All writes to Kubernetes share limit. Errors name flags.
func newRegistered(i *ingester, c *config, cluster *kube.Source, writes *promoted.Writer, limit *rate.Limiter) ([]duty, error) {
	if !c.env.autoRegister {
		return nil, nil
	}
	r := &registered{leader: &machines.Leader{Grace: c.env.machineGrace, OwnOnly: cluster == nil, Log: i.log}, store: i.store, log: i.log}
	if cluster == nil {
		r.origin, r.entries = machines.Origin(), func() machines.WorkloadEntries { return &machines.Objects{Emit: i.loop.Emit} }
		return []duty{{lead: r.lead, problems: r.problems, origin: &r.origin}}, nil
	}
	api, err := status.NewWorkloadEntries(c.kubeconfig, c.env.watchOnly)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	w := written{api: api, origin: cluster.Origin(),
		writer: status.New(status.Config[status.WorkloadEntry]{API: api, Kind: "WorkloadEntry", Until: writes.Until, Limit: limit, Log: i.log})}
	r.origin, r.entries = w.origin, func() machines.WorkloadEntries { return w }
	return []duty{{begin: w.begin, lead: w.lead, problems: w.problems}, {lead: r.lead, problems: r.problems}}, nil
}

// written writes the WorkloadEntries of machines to a cluster. It implements machines.WorkloadEntries.
type written struct {
	api    *status.WorkloadEntries
	writer *status.Writer[status.WorkloadEntry]
	origin origin.Origin
}

// begin discards the wanted WorkloadEntries of an earlier term (time as leader).
func (w written) begin() { w.writer.Want(nil) }

// lead writes the WorkloadEntries to Kubernetes during one term, until ctx ends.
func (w written) lead(ctx context.Context, epoch kv.Epoch) {
	_ = w.writer.Run(ctx, epoch.Revision) // its error is the context's
}

// Want implements machines.WorkloadEntries: it replaces all wanted WorkloadEntries, and does not wait until they are
// written.
func (w written) Want(all map[machines.Name]machines.Wanted) { w.writer.Want(status.Machines(all)) }

// There implements machines.WorkloadEntries: it returns the existing WorkloadEntries of machines, and a channel. The
// channel is closed when an entry appears or disappears, or when all were listed again.
func (w written) There() ([]machines.WorkloadEntry, <-chan struct{}) { return w.api.There() }

// lead decides which WorkloadEntries exist for machines during one term, until ctx ends.
func (r *registered) lead(ctx context.Context, _ kv.Epoch) {
	if err := r.leader.Run(ctx, r.store, r.entries()); err != nil && ctx.Err() == nil {
		r.log.Error("registering machines has failed: no machine is registered until another term of a leader begins", obs.KeyError, err)
	}
}

// problems returns the problems of the last decision in the present term.
func (r *registered) problems() (all []object.Problem) {
	for _, p := range r.leader.Problems() {
		all = append(all, problemOfMachine(r.origin, p.Namespace, p.Name, p.Message))
	}
	return all
}

// problems returns the problems of writing the WorkloadEntries.
func (w written) problems() (all []object.Problem) {
	for _, p := range w.writer.Problems() {
		all = append(all, problemOfMachine(w.origin, p.Key.Namespace, p.Key.Name, p.Message))
	}
	return all
}

func problemOfMachine(of origin.Origin, namespace, name, message string) object.Problem {
	return object.Problem{ID: object.ID{Origin: of, Group: "networking.istio.io", Kind: "WorkloadEntry", Namespace: namespace, Name: name},
		Location: "a machine", Code: problem.Pending, Severity: problem.Error, Message: message}
}
