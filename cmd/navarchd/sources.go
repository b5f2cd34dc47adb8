package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/store/allocate"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/hostnames"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead/cutoff"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/source/remote"
)

// sources are the sources of configuration.
type sources struct {
	folder   *files.Source    // nil: no folder
	cluster  *kube.Source     // the config cluster; nil: no configuration comes from Kubernetes
	clusters *remote.Clusters // other clusters that Secrets of the config cluster name; nil without the config cluster
}

// newSources makes the sources that the flags name: a folder, a Kubernetes cluster, or both. The argument others
// configures the clusters that Secrets of the Kubernetes cluster name. newSources sends no request. Errors name
// flags.
func newSources(c *config, others remote.Config, log *slog.Logger) (from sources, err error) {
	if c.configDir != "" {
		if from.folder, err = files.New(files.Config{Dir: c.configDir, Cluster: c.cluster, Log: log}); err != nil {
			return sources{}, fmt.Errorf("--config-dir: %w", err)
		}
	}
	if !c.kubernetes() {
		return from, nil
	}
	from.cluster, err = kube.New(kube.Config{Kubeconfig: c.kubeconfig, SystemNamespace: c.env.podNamespace, Revision: c.env.revision,
		Namespace: c.env.watchOnly, SharedMesh: c.env.sharedMesh, Ignore: c.env.ignore, Include: c.env.include, Log: log})
	if err != nil {
		return sources{}, fmt.Errorf("--kubeconfig, --registries, PILOT_IGNORE_RESOURCES, PILOT_INCLUDE_RESOURCES: %w", err)
	}
	others.Source = kube.Config{Namespace: c.env.watchOnly, Revision: c.env.revision,
		WorkloadEntries: c.env.theirEntries, Ignore: c.env.ignore, Include: c.env.include}
	if from.clusters, err = remote.New(others); err != nil {
		return sources{}, fmt.Errorf("--kubeconfig, PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS: %w", err)
	}
	return from, nil
}

// refer passes the references to needed Secrets to all clusters.
func (s sources) refer(all []object.Reference) {
	s.cluster.Refer(all)
	s.clusters.Refer(all)
}

// remotes configures the discovery of other clusters. The leader finds these clusters, and stores their credentials in
// sealed form. Other processes read the credentials from the store. With a nil sealer the leader stores no credentials.
func (c *config) remotes(store *kv.Store, sealer seal.Sealer, log *slog.Logger) remote.Config {
	others := remote.Config{Kubeconfig: c.kubeconfig, Namespace: c.env.podNamespace, Own: c.cluster, Allowed: c.env.fromFiles,
		Store: store, Log: log}
	if sealer != nil {
		others.Sealer = vault.Kubeconfigs{Sealer: sealer, Mesh: c.mesh}
	}
	return others
}

// newNames returns the leader's duty to resolve the DNS names of gateways between networks. The parameter ingestLoop
// reports the names that are needed. The result is nil if the environment does not enable this duty.
func newNames(c *config, ingestLoop *ingest.Loop, store *kv.Store, log *slog.Logger) []duty {
	if !c.env.gatewayNames {
		return nil
	}
	servers, err := hostnames.System("/etc/resolv.conf")
	if err != nil {
		log.Warn("this process knows no DNS server: names of gateways between networks are not resolved while it leads", obs.KeyError, err)
	}
	names := hostnames.New(hostnames.Config{Resolve: servers.Resolve, Emit: ingestLoop.Emit, Log: log})
	ingestLoop.Named = names.Need
	from := hostnames.Origin()
	return []duty{{lead: func(ctx context.Context, epoch kv.Epoch) { names.Run(ctx, store, epoch) },
		problems: func() []object.Problem { return nameProblems(names) }, origin: &from}}
}

// nameProblems returns the problems of resolving names while this process leads.
func nameProblems(names *hostnames.Leader) (all []object.Problem) {
	for _, p := range names.Problems() {
		all = append(all, object.Problem{ID: normal.ResolvedID(p.Name),
			Location: "DNS", Code: problem.Pending, Severity: problem.Warning, Message: p.Message})
	}
	return all
}

// normal returns the options for the conversion of objects to records. With Kubernetes, the options select the mesh
// configuration of this process's namespace and revision.
func (c *config) normal() normal.Options {
	o := normal.Options{Domain: c.domain, Cluster: c.cluster, Signers: c.env.signers,
		ResolveGateways: c.env.gatewayNames, KeysOfCluster: c.jwksCluster,
		MergedListeners: c.env.oneListener, LocalNames: !c.env.theirNames, Isolation: c.isolation.settings,
		OwnGateways: c.env.routers.OwnNamespace}
	if c.env.autoAllocate {
		o.Automatic = c.automaticRanges()
	}
	if c.kubernetes() {
		o.SystemNamespace, o.Revision = c.env.podNamespace, c.env.revision
	}
	return o
}

// automaticRanges returns the ranges of automatic addresses.
func (c *config) automaticRanges() []netip.Prefix {
	return []netip.Prefix{c.env.ipv4Range, c.env.ipv6Range}
}

// origins returns the origins of the sources that must be read completely before the leader writes anything.
func (s sources) origins(c *config) (all []origin.Origin) {
	if s.folder != nil {
		all = append(all, origin.Origin{})
	}
	if s.cluster != nil {
		all = append(all, s.cluster.Origin())
	}
	if c.env.autoRegister && s.cluster == nil {
		all = append(all, machines.Origin())
	}
	if c.env.autoAllocate {
		all = append(all, allocate.Origin())
	}
	if c.env.gatewayNames {
		all = append(all, hostnames.Origin())
	}
	return append(all, jwks.Origin())
}

// readUntil returns, by cluster, the time up to which this process has read the cluster as leader. It returns nil if
// the config cluster was not read.
func (s sources) readUntil() map[string]asof.Read {
	until, everywhere := s.cluster.ReadUntil()
	if until.IsZero() {
		return nil
	}
	all := map[string]asof.Read{s.cluster.Origin().Cluster(): {Until: until, Everywhere: everywhere, Namespaces: true}}
	s.clusters.ReadUntil(func(of origin.Origin, until time.Time, everywhere, accounts bool) {
		all[of.Cluster()] = asof.Read{Until: until, Everywhere: everywhere, Namespaces: true, NoAccounts: !accounts}
	})
	return all
}

// secretUses lists the Secrets that a record uses, for the ingester. root is the root namespace.
func secretUses(r model.Record, root string) (all []ingest.SecretUse) {
	for _, u := range access.SecretUses(r, root) {
		all = append(all, ingest.SecretUse(u))
	}
	return all
}

// addSources adds to the ingester the task that reads the folder, the problems of all sources, and the metrics of the
// clusters. It also adds the task that ends the term of a leader that cannot reach the API server (store/lead/cutoff).
func (i *ingester) addSources(c ingesterConfig, from sources) {
	if folder := from.folder; folder != nil {
		i.problems = append(i.problems, folder.Problems)
		i.tasks = append(i.tasks, loop.Task{Name: "files", Run: func(ctx context.Context) error {
			return folder.Run(ctx, changes.CountFirst(i.log, folder.Dir, i.emit))
		}})
	}
	if from.cluster != nil {
		i.problems = append(i.problems, from.cluster.Problems, from.clusters.Problems)
		if c.config.dataDir == "" { // with an embedded etcd there is no other candidate
			cut := cutoff.New(cutoff.Config{Elector: i.lead, Until: c.read, Reaches: from.cluster.Check, Log: i.log})
			i.tasks = append(i.tasks, loop.Task{Name: "leader that is cut off", Run: cut.Run})
		}
		i.gauges = append(i.gauges, from.clusters.Gauges, func(now time.Time) {
			obs.KubeAge.Set(from.cluster.Age(now).Seconds())
			obs.ManagedClusters.WithLabelValues("local").Set(flag(from.cluster.Runs()))
		})
	}
}

// sourceProblems returns the problems of sources and duties, as limited by ingest.Bounded.
func (i *ingester) sourceProblems() []object.Problem {
	var all []object.Problem
	for _, problems := range i.problems {
		all = append(all, problems()...)
	}
	for _, d := range i.duties {
		if d.problems != nil {
			all = append(all, d.problems()...)
		}
	}
	return ingest.Bounded(all, nil)
}
