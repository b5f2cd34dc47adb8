package main

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/allocate"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead/promoted"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

// automatic assigns automatic addresses to hosts of ServiceEntries while this process leads.
type automatic struct {
	leader *allocate.Leader
	store  *kv.Store
	origin origin.Origin // of the objects with problems
}

// addressStatus writes the addresses to the status of objects in Kubernetes, unless istiod assigns such addresses.
type addressStatus struct {
	lock   *allocate.Lock // reports whether istiod assigns addresses
	writer *status.Writer[unstructured.Unstructured]
	origin origin.Origin // of the objects
}

// newAutomatic makes the leader of address assignment, and its duties (tasks of a leading process). It sends no
// request. The argument api is the client of the config cluster's API server. The arguments api and writes are nil if
// the configuration comes from files alone. The error names the flags.
func newAutomatic(i *ingester, c *config, api *apiserver.Client,
	from sources, writes *promoted.Writer, limit *rate.Limiter) (*allocate.Leader, []duty, error) {
	a, log := &automatic{store: i.store, origin: origin.New("", origin.Files)}, i.log
	var duties []duty
	conf := allocate.Config{Ranges: c.automaticRanges(), Grace: allocate.Grace, Emit: i.loop.Emit, Log: log}
	if from.folder != nil {
		conf.Sources = append(conf.Sources, origin.Origin{})
	}
	if from.cluster != nil {
		entries, err := status.NewIstio(c.kubeconfig, c.env.watchOnly, status.ServiceEntries)
		if err != nil {
			return nil, nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
		}
		a.origin = from.cluster.Origin()
		s := &addressStatus{lock: allocate.NewLock(api, c.env.podNamespace, log), origin: a.origin,
			writer: status.New(status.Config[unstructured.Unstructured]{API: entries,
				Kind: "ServiceEntry", Until: writes.Until, Limit: limit, Log: log})}
		conf.Sources, conf.Lock, conf.Want, conf.Promoted = append(conf.Sources, a.origin), s.lock, s.want, writes.Promoted
		duties = append(duties, duty{begin: s.begin, lead: s.lead, problems: s.problems})
	}
	a.leader = allocate.New(conf)
	given := allocate.Origin()
	lead := func(ctx context.Context, epoch kv.Epoch) { a.leader.Run(ctx, a.store, epoch) }
	return a.leader, append(duties, duty{lead: lead, problems: a.problems, origin: &given}), nil
}

// begin discards the desired statuses of this process's earlier term as leader.
func (s *addressStatus) begin() { s.writer.Want(nil) }

// want sets the desired status of objects to the assigned addresses.
func (s *addressStatus) want(all map[allocate.Name]allocate.Hosts) {
	out := make(map[status.Key]map[string][]string, len(all))
	for name, hosts := range all {
		texts := make(map[string][]string, len(hosts))
		for host, ips := range hosts {
			for _, ip := range ips {
				texts[host] = append(texts[host], ip.String())
			}
		}
		out[status.Key(name)] = texts
	}
	s.writer.Want(status.Addresses(out))
}

// lead watches the lock and writes the statuses during one term as leader, until ctx ends.
func (s *addressStatus) lead(ctx context.Context, epoch kv.Epoch) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.lock.Run(ctx) })
	_ = s.writer.Run(ctx, epoch.Revision) // its error is the context's
}

// problems returns the problems of address assignment in this process's term as leader.
func (a *automatic) problems() (all []object.Problem) {
	for _, p := range a.leader.Problems() {
		all = append(all, problemOfAddresses(a.origin, p.Namespace, p.Name.Name, p.Message))
	}
	return all
}

// problems returns the problems of writing statuses in this process's term as leader.
func (s *addressStatus) problems() (all []object.Problem) {
	if why := s.lock.Unknown(); why != "" {
		all = append(all, problemOfAddresses(s.origin, "", "of all namespaces",
			"no new automatic addresses are assigned, because it cannot be read whether istiod assigns them: "+why))
	}
	for _, p := range s.writer.Problems() {
		all = append(all, problemOfAddresses(s.origin, p.Key.Namespace, p.Key.Name, p.Message))
	}
	return all
}

// problemOfAddresses returns a warning about the automatic addresses of a ServiceEntry.
func problemOfAddresses(of origin.Origin, namespace, name, message string) object.Problem {
	return object.Problem{ID: object.ID{Origin: of, Group: status.ServiceEntries.Group,
		Kind: status.ServiceEntries.Kind, Namespace: namespace, Name: name},
		Location: "automatic addresses", Field: "status.addresses", Code: problem.Pending, Severity: problem.Warning, Message: message}
}
