package main

import (
	"context"
	"errors"

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

// addInjection has the webhooks' server inject Pods, by the ConfigMap of the config cluster. Without a cluster nobody asks for that.
func (a *assembly) addInjection(server *admit.Server) error {
	c := a.config
	if a.api == nil {
		return nil
	}
	mesh, err := a.meshOfInjection()
	if err != nil {
		return err
	}
	conf := injection.Config{Namespace: c.env.podNamespace, Revision: c.env.revision, Cluster: c.cluster, Native: c.env.nativeSidecars, Mesh: mesh, Proxies: a.proxiesOfInjection(), Kubelets: injection.Kubelets(a.api), Log: a.scoped(obs.ScopeAdmit)}
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

// proxiesOfInjection are the ProxyConfigs of the records, where this process follows them; else nil.
func (a *assembly) proxiesOfInjection() inject.ProxyConfigs {
	if !a.config.has(roleXDS) {
		return nil
	}
	return func(namespace string) []*proxyconfigv1.ProxyConfig {
		if s := a.snapshot(); s != nil {
			return injection.ProxyConfigs(s, namespace)
		}
		return nil
	}
}

// meshOfInjection is the mesh configuration as it is now: that of the records, where this process follows them, else of the ConfigMap.
func (a *assembly) meshOfInjection() (func() *meshv1alpha1.MeshConfig, error) {
	c := a.config
	if c.has(roleXDS) {
		return func() *meshv1alpha1.MeshConfig {
			if s := a.snapshot(); s != nil {
				return s.Mesh().Spec
			}
			return nil
		}, nil
	}
	if c.env.sharedMesh != "" {
		return nil, errors.New("SHARED_MESH_CONFIG: a process with role admit reads it only with role xds, too")
	}
	log := a.scoped(obs.ScopeAdmit)
	m := injection.NewMesh(normal.New(c.normal()), log)
	maps, err := status.NewConfigMaps(c.kubeconfig, c.env.podNamespace, m.Name())
	if err != nil {
		return nil, err
	}
	a.add(part{tasks: []loop.Task{{Name: "mesh configuration for injection", Run: func(ctx context.Context) error {
		return maps.Follow(ctx, m, func(err error) {
			if err != nil {
				log.Warn("the mesh configuration cannot be read", obs.KeyError, err)
			}
		})
	}}}})
	return m.Current, nil
}
