package main

import (
	"context"
	"fmt"
	"log/slog"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/store/allocate"
	"navarch.io/navarch/store/hostnames"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
	"navarch.io/navarch/store/source/guard"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/source/remote"
)

// newSources makes what the configuration comes from: a folder, a Kubernetes cluster, or both; nil: there is none. Their guards add losses up
// in memory.
func newSources(c *config, memory *guard.Memory, log *slog.Logger) (folder *files.Source, cluster *kube.Source, err error) {
	if c.configDir != "" {
		if folder, err = files.New(files.Config{Dir: c.configDir, Cluster: c.cluster, AllowEmpty: c.allowNone, Memory: memory, Log: log}); err != nil {
			return nil, nil, fmt.Errorf("--config-dir: %w", err)
		}
	}
	if c.kubernetes() {
		cluster, err = kube.New(kube.Config{Kubeconfig: c.kubeconfig, SystemNamespace: c.env.podNamespace, Revision: c.env.revision,
			Namespace: c.env.watchOnly, SharedMesh: c.env.sharedMesh, Ignore: c.env.ignore, Include: c.env.include, AllowEmpty: c.allowNone, Memory: memory, Log: log})
		if err != nil {
			return nil, nil, fmt.Errorf("--kubeconfig, --registries, PILOT_IGNORE_RESOURCES, PILOT_INCLUDE_RESOURCES: %w", err)
		}
	}
	return folder, cluster, nil
}

// newClusters makes the sources of other clusters, which Secrets of the config cluster name; nil: there is no config cluster in Kubernetes.
func newClusters(c *config, memory *guard.Memory, log *slog.Logger) (*remote.Clusters, error) {
	if !c.kubernetes() {
		return nil, nil
	}
	of := c.remotes(log)
	of.Source = kube.Config{Namespace: c.env.watchOnly, Revision: c.env.revision, WorkloadEntries: c.env.theirEntries, Ignore: c.env.ignore, Include: c.env.include,
		AllowEmpty: c.allowNone, Memory: memory}
	clusters, err := remote.New(of)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS: %w", err)
	}
	return clusters, nil
}

// remotes is how other clusters are found.
func (c *config) remotes(log *slog.Logger) remote.Config {
	return remote.Config{Kubeconfig: c.kubeconfig, Namespace: c.env.podNamespace, Own: c.cluster, Allowed: c.env.fromFiles, Log: log}
}

// newNames has the leader resolve names of networks' gateways, and the ingester's loop say which these are; none: they are not resolved.
func newNames(c *config, to *ingest.Loop, store *kv.Store, log *slog.Logger) []duty {
	if !c.env.gatewayNames {
		return nil
	}
	servers, err := hostnames.System("/etc/resolv.conf")
	if err != nil {
		log.Warn("this process knows no DNS server: names of gateways between networks are not resolved while it leads", obs.KeyError, err)
	}
	names := hostnames.New(hostnames.Config{Resolve: servers.Resolve, Emit: to.Emit, Log: log})
	to.Named = names.Need
	from := hostnames.Origin()
	return []duty{{lead: func(ctx context.Context, epoch kv.Epoch) { names.Run(ctx, store, epoch) }, problems: func() []object.Problem { return nameProblems(names) }, origin: &from}}
}

// nameProblems are those of the names that this process has resolved as leader.
func nameProblems(names *hostnames.Leader) (all []object.Problem) {
	for _, p := range names.Problems() {
		all = append(all, object.Problem{ID: normal.ResolvedID(p.Name), Location: "DNS", Code: problem.Pending, Severity: problem.Warning, Message: p.Message})
	}
	return all
}

// normal is what normal forms depend on. In Kubernetes the mesh configuration is that of this process's own namespace and revision.
func (c *config) normal() normal.Options {
	o := normal.Options{Domain: c.domain, Cluster: c.cluster, Signers: c.env.signers, Automatic: c.env.autoAllocate, ResolveGateways: c.env.gatewayNames}
	if c.kubernetes() {
		o.SystemNamespace, o.Revision = c.env.podNamespace, c.env.revision
	}
	return o
}

// sourcesOf is the origins of the sources that have to have told everything before anything is written.
func sourcesOf(c *config, folder *files.Source, cluster *kube.Source) (all []origin.Origin) {
	if folder != nil {
		all = append(all, origin.Origin{})
	}
	if cluster != nil {
		all = append(all, cluster.Origin())
	}
	if c.env.autoRegister && cluster == nil {
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

// secretUses is what the ingester asks of records.
func secretUses(r model.Record, root string) (all []ingest.SecretUse) {
	for _, u := range access.SecretUses(r, root) {
		all = append(all, ingest.SecretUse(u))
	}
	return all
}

// forget drops what a term has emitted: its duties' objects, and what it has read of the cluster. Only the leader reads that, and the next term begins again.
func (i *ingester) forget() {
	for _, d := range i.duties {
		if d.origin != nil {
			i.loop.Emit([]object.Event{{Op: object.Forget, ID: object.ID{Origin: *d.origin}}})
		}
	}
	if i.kube != nil {
		i.automatic.emit(i.loop.Emit)([]object.Event{{Op: object.Forget, ID: object.ID{Origin: i.kube.Origin()}}})
	}
}

// sourceProblems is what is wrong with the sources themselves, as much as is listed (ingest.Bounded).
func (i *ingester) sourceProblems() []object.Problem {
	return ingest.Bounded(i.allSourceProblems(), nil)
}

func (i *ingester) allSourceProblems() (all []object.Problem) {
	if i.source != nil {
		all = i.source.Problems()
	}
	if i.kube != nil {
		all = append(all[:len(all):len(all)], i.kube.Problems()...)
	}
	if i.clusters != nil {
		all = append(all[:len(all):len(all)], i.clusters.Problems()...)
	}
	if i.status != nil {
		all = append(all, i.status.problems(i.kube.Origin())...)
	}
	return append(all[:len(all):len(all)], problemsOf(i.duties)...)
}
