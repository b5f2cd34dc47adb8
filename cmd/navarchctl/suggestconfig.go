package main

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/cmd/navarchctl/suggest"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
)

// configOf returns the part of a snapshot that suggest.Sidecars reads.
func configOf(s *mirror.Snapshot) suggest.Config {
	mesh := s.Mesh().Spec
	c := suggest.Config{Root: mesh.GetRootNamespace()}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range s.All(kind) {
			if one, is := r.(*model.Service); is {
				c.Services = append(c.Services, suggest.Service{Namespace: one.Key.Namespace, Hosts: one.Spec.GetHosts(),
					ExportTo: one.Spec.GetExportTo(), AliasFor: one.Spec.GetAliasFor()})
			}
		}
	}
	for r := range s.All(model.KindVirtualService) {
		vs, is := r.(*model.VirtualService)
		if !is || !virtualservice.For(vs, virtualservice.Mesh) {
			continue
		}
		route := suggest.Route{Object: vs.Key.String(), Namespace: vs.Key.Namespace, Hosts: vs.Spec.GetHosts(),
			ExportTo: vs.Spec.GetExportTo()}
		if len(route.ExportTo) == 0 {
			route.ExportTo = mesh.GetDefaultVirtualServiceExportTo()
		}
		normal.Destinations(vs.Spec, func(_ string, d *networkingv1.Destination) {
			route.Destinations = append(route.Destinations, d.GetHost())
		})
		c.Routes = append(c.Routes, route)
	}
	for r := range s.All(model.KindSidecar) {
		if one, is := r.(*model.Sidecar); is {
			c.Sidecars = append(c.Sidecars, suggest.Sidecar{Namespace: one.Key.Namespace, Name: one.Key.Name,
				Selects: len(one.Spec.GetWorkloadSelector().GetLabels()) > 0})
		}
	}
	return c
}
