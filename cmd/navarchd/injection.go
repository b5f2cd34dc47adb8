package main

import (
	"context"
	"log/slog"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	proxyconfigv1 "istio.io/api/networking/v1beta1"

	"navarch.io/navarch/cmd/navarchd/injection"
	"navarch.io/navarch/store/admit"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/status"
)

// addInjection adds the injection of proxies to the webhook server. A ConfigMap of the config cluster (which stores the
// configuration) has the settings. Without a config cluster, addInjection does nothing.
func (a *assembly) addInjection(server *admit.Server) error {
	c := a.config
	if a.api == nil {
		return nil
	}
	proxies, err := a.proxiesOfInjection()
	if err != nil {
		return err
	}
	conf := injection.Config{Namespace: c.env.podNamespace, Revision: c.env.revision, Cluster: c.cluster,
		Native: c.env.nativeSidecars, Mesh: a.mesh, Proxies: proxies, Kubelets: injection.Kubelets(a.api), Log: a.scoped(obs.ScopeAdmit)}
	maps, err := status.NewConfigMaps(c.kubeconfig, conf.Namespace, conf.Name())
	if err != nil {
		return err
	}
	conf.Follow = maps.Follow
	i := injection.New(conf)
	server.Register("injection", "/inject", i.Handler, func(int) { obs.InjectionFailures.Inc() })
	a.add(part{tasks: i.Tasks(), notes: []func() []string{i.Notes}})
	return nil
}

// proxiesOfInjection returns the source of ProxyConfigs for injection: the stored records in a process with role xds,
// and otherwise the API server.
func (a *assembly) proxiesOfInjection() (inject.ProxyConfigs, error) {
	c := a.config
	if c.has(roleXDS) {
		return func(namespace string) []*proxyconfigv1.ProxyConfig {
			if s := a.snapshot(); s != nil {
				return injection.ProxyConfigs(s, namespace)
			}
			return nil
		}, nil
	}
	log := a.scoped(obs.ScopeAdmit)
	objects, err := status.NewProxyConfigs(c.kubeconfig, c.env.watchOnly)
	if err != nil {
		return nil, err
	}
	followed := injection.NewFollowedProxyConfigs(normal.New(c.normal()), c.env.revision, log)
	a.add(part{tasks: []loop.Task{{Name: "ProxyConfigs for injection", Run: func(ctx context.Context) error {
		return objects.Follow(ctx, followed, warnUnread(log, "the objects of kind ProxyConfig cannot be read"))
	}}}})
	return followed.In, nil
}

// warnUnread returns a function that logs an error as a warning. The argument what is the message of the warning. The
// returned function ignores a nil error.
func warnUnread(log *slog.Logger, what string) func(error) {
	return func(err error) {
		if err != nil {
			log.Warn(what, obs.KeyError, err)
		}
	}
}

// addMesh sets the source of the mesh configuration for the webhooks: the stored records in a process with role xds,
// and otherwise the ConfigMaps of the config cluster. With neither source, the mesh configuration stays unknown.
func (a *assembly) addMesh() error {
	c := a.config
	if c.has(roleXDS) {
		a.mesh = func() *meshv1alpha1.MeshConfig {
			if s := a.snapshot(); s != nil {
				return s.Mesh().Spec
			}
			return nil
		}
		return nil
	}
	if a.api == nil {
		return nil
	}
	log := a.scoped(obs.ScopeAdmit)
	m := injection.NewMesh(normal.New(c.normal()), c.env.sharedMesh, log)
	for _, name := range m.Names() {
		maps, err := status.NewConfigMaps(c.kubeconfig, c.env.podNamespace, name)
		if err != nil {
			return err
		}
		a.add(part{tasks: []loop.Task{{Name: "mesh configuration for the webhooks, ConfigMap " + name, Run: func(ctx context.Context) error {
			return maps.Follow(ctx, m.Seen(name), warnUnread(log, "the mesh configuration cannot be read"))
		}}}})
	}
	a.mesh = m.Current
	return nil
}
