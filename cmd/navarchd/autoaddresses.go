package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/allocate"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

// automatic gives automatic addresses to hosts of ServiceEntries while this process leads, and writes them to the status of objects in Kubernetes.
type automatic struct {
	leader *allocate.Leader
	lock   *allocate.Lock                            // istiod's; nil: the configuration comes from files alone
	writer *status.Writer[unstructured.Unstructured] // nil with it
	store  *kv.Store
	origin origin.Origin // of the objects that problems are of
}

// newAutomatic asks nothing yet; writes is nil where the configuration comes from files alone. Errors name flags.
func newAutomatic(i *ingester, from sources, writes *kubernetesWriter, limit *rate.Limiter) (*automatic, error) {
	a := &automatic{store: i.store, origin: origin.New("", origin.Files)}
	c, log := i.config, i.log
	conf := allocate.Config{Ranges: []netip.Prefix{c.env.ipv4Range, c.env.ipv6Range}, Grace: allocate.Grace, Emit: i.loop.Emit, Log: log}
	if from.folder != nil {
		conf.Sources = append(conf.Sources, origin.Origin{})
	}
	if from.cluster != nil {
		entries, err := status.NewIstio(c.kubeconfig, c.env.watchOnly, status.ServiceEntries)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
		}
		a.origin, a.lock = from.cluster.Origin(), allocate.NewLock(i.api, c.env.podNamespace, log)
		a.writer = status.New(status.Config[unstructured.Unstructured]{API: entries, Kind: "ServiceEntry", Until: writes.Until, Limit: limit, Log: log})
		conf.Sources, conf.Lock, conf.Want, conf.Promoted = append(conf.Sources, a.origin), a.lock, a.want, writes.Promoted
	}
	a.leader = allocate.New(conf)
	return a, nil
}

func (a *automatic) duty() duty {
	from := allocate.Origin()
	return duty{lead: a.lead, problems: a.problems, origin: &from}
}

// want has the status of objects say what is given.
func (a *automatic) want(all map[allocate.Name]allocate.Hosts) {
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
	a.writer.Want(status.Addresses(out))
}

// lead is one term.
func (a *automatic) lead(ctx context.Context, epoch kv.Epoch) {
	var parts sync.WaitGroup
	defer parts.Wait()
	if a.writer != nil {
		a.writer.Want(nil) // what another term wanted
		parts.Go(func() { a.lock.Run(ctx) })
		parts.Go(func() { _ = a.writer.Run(ctx, epoch.Revision) }) // its error is the context's
	}
	a.leader.Run(ctx, a.store, epoch)
}

// problems are those of this process's term.
func (a *automatic) problems() (all []object.Problem) {
	say := func(namespace, name, message string) {
		all = append(all, object.Problem{ID: object.ID{Origin: a.origin, Group: status.ServiceEntries.Group, Kind: status.ServiceEntries.Kind, Namespace: namespace, Name: name},
			Location: "automatic addresses", Field: "status.addresses", Code: problem.Pending, Severity: problem.Warning, Message: message})
	}
	for _, p := range a.leader.Problems() {
		say(p.Namespace, p.Name.Name, p.Message)
	}
	if why := a.lock.Unknown(); why != "" {
		say("", "of all namespaces", "no new automatic addresses are given: whether istiod gives them cannot be read: "+why)
	}
	if a.writer != nil {
		for _, p := range a.writer.Problems() {
			say(p.Key.Namespace, p.Key.Name, p.Message)
		}
	}
	return all
}
