package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/status"
)

// registered has the WorkloadEntries of machines be there while this process leads: in Kubernetes where the configuration comes from there, else
// as records.
type registered struct {
	leader *machines.Leader
	writer *status.Writer[status.WorkloadEntry] // nil: records
	api    *status.WorkloadEntries
	emit   func([]object.Event)
	store  *kv.Store
	origin origin.Origin
	log    *slog.Logger
}

// newRegistered asks nothing yet; none: machines do not register themselves. cluster and writes are nil where the configuration comes from files alone. The limit is that of all that is written to Kubernetes. Errors name flags.
func newRegistered(i *ingester, cluster *kube.Source, writes *kubernetesWriter, limit *rate.Limiter) ([]duty, error) {
	c := i.config
	if !c.env.autoRegister {
		return nil, nil
	}
	r := &registered{leader: &machines.Leader{Grace: c.env.machineGrace, OwnOnly: cluster == nil, Log: i.log}, emit: i.loop.Emit, store: i.store, origin: machines.Origin(), log: i.log}
	if cluster == nil {
		return []duty{{lead: r.lead, problems: r.problems, origin: &r.origin}}, nil
	}
	var err error
	if r.api, err = status.NewWorkloadEntries(c.kubeconfig, c.env.watchOnly); err != nil {
		return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	r.origin = cluster.Origin()
	r.writer = status.New(status.Config[status.WorkloadEntry]{API: r.api, Kind: "WorkloadEntry", Until: writes.Until, Limit: limit, Log: i.log})
	return []duty{{lead: r.lead, problems: r.problems}}, nil
}

// written is the entries of a cluster, as store/machines knows them.
type written struct{ *registered }

// Want implements machines.WorkloadEntries.
func (w written) Want(all map[machines.Name]machines.Wanted) { w.writer.Want(status.Machines(all)) }

// There implements machines.WorkloadEntries.
func (w written) There() ([]machines.WorkloadEntry, <-chan struct{}) { return w.api.There() }

// lead is one term.
func (r *registered) lead(ctx context.Context, epoch kv.Epoch) {
	var entries machines.WorkloadEntries = &machines.Objects{Emit: r.emit}
	var writing sync.WaitGroup
	defer writing.Wait()
	if r.writer != nil {
		entries = written{r}
		r.writer.Want(nil) // what another term wanted
		writing.Go(func() { _ = r.writer.Run(ctx, epoch.Revision) })
	}
	if err := r.leader.Run(ctx, r.store, entries); err != nil && ctx.Err() == nil {
		r.log.Error("machines are not registered while this process leads", obs.KeyError, err)
	}
}

// problems are those of this process's term.
func (r *registered) problems() (all []object.Problem) {
	say := func(namespace, name, message string) {
		all = append(all, object.Problem{ID: object.ID{Origin: r.origin, Group: "networking.istio.io", Kind: "WorkloadEntry", Namespace: namespace, Name: name},
			Location: "a machine", Code: problem.Pending, Severity: problem.Error, Message: message})
	}
	for _, p := range r.leader.Problems() {
		say(p.Namespace, p.Name, p.Message)
	}
	if r.writer != nil {
		for _, p := range r.writer.Problems() {
			say(p.Key.Namespace, p.Key.Name, p.Message)
		}
	}
	return all
}
