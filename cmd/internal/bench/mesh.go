// Package bench measures the speed and memory of the CA, and of the stages from stored records to xDS resources. The
// command `make bench` prints the figures as a table.
package bench

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// mesh generates the records of a mesh with the given number of services. Each service has an HTTP port, a TCP port and
// four Pods, as in the mesh called World A in the directory loadtest.
type mesh struct{ services int }

// namespaces returns the number of namespaces: one for each ten services, and at least one.
func (w mesh) namespaces() int { return max(1, w.services/10) }

func namespaceOf(i, namespaces int) string { return fmt.Sprintf("ns-%03d", i%namespaces) }

func (w mesh) host(i int) string {
	return fmt.Sprintf("svc-%04d.%s.svc.cluster.local", i, namespaceOf(i, w.namespaces()))
}

// records returns the records of the whole mesh.
func (w mesh) records() []model.Record {
	all := make([]model.Record, 0, 2*w.services)
	for i := range w.services {
		all = append(all, w.service(i), w.endpoints(i, 4))
	}
	return all
}

// service returns the Service record of service i.
func (w mesh) service(i int) model.Record {
	name := fmt.Sprintf("svc-%04d", i)
	return record(model.KindService, namespaceOf(i, w.namespaces()), name, &model.ServiceSpec{
		Hosts:     []string{w.host(i)},
		Addresses: []string{fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250)},
		Selector:  map[string]string{"app": name},
		ExportTo:  []string{"*"},
		Ports: []*model.ServicePort{
			{Number: 80, Name: "http", Protocol: model.Protocol_PROTOCOL_HTTP, TargetNumber: 8080},
			{Number: 9000, Name: "tcp", Protocol: model.Protocol_PROTOCOL_TCP, TargetNumber: 9000},
		},
	})
}

// endpoints returns the Endpoints record of service i. The argument ready is the number of its four Pods that are
// ready.
func (w mesh) endpoints(i, ready int) model.Record {
	name, namespace := fmt.Sprintf("svc-%04d", i), namespaceOf(i, w.namespaces())
	spec := &model.EndpointsSpec{
		Hosts: []string{w.host(i)},
		Ports: []*model.EndpointPort{{Name: "http", Number: 8080}, {Name: "tcp", Number: 9000}},
	}
	for pod := range 4 {
		health := model.Health_HEALTH_READY
		if pod >= ready {
			health = model.Health_HEALTH_NOT_READY
		}
		spec.Endpoints = append(spec.Endpoints, &model.Endpoint{
			Address:        fmt.Sprintf("10.%d.%d.%d", 1+i/250, i%250, 1+pod),
			Labels:         map[string]string{"app": name, "version": fmt.Sprintf("v%d", 1+pod%2)},
			Health:         health,
			Namespace:      namespace,
			ServiceAccount: name,
			Workload:       name,
			Cluster:        "Kubernetes",
			Locality:       fmt.Sprintf("region/zone-%d", pod%3),
		})
	}
	return record(model.KindEndpoints, namespace, name+"-x", spec)
}

// virtualService returns a VirtualService for service i. The argument edition is part of the name of its route.
func (w mesh) virtualService(i, edition int) model.Record {
	return record(model.KindVirtualService, namespaceOf(i, w.namespaces()), fmt.Sprintf("svc-%04d", i), &networkingv1.VirtualService{
		Hosts:    []string{w.host(i)},
		Gateways: []string{"mesh"},
		ExportTo: []string{"*"},
		Http: []*networkingv1.HTTPRoute{{
			Name:  fmt.Sprintf("edition-%d", edition),
			Route: []*networkingv1.HTTPRouteDestination{{Destination: &networkingv1.Destination{Host: w.host(i)}}},
		}},
	})
}

func record(kind model.Kind, namespace, name string, body proto.Message) model.Record {
	r, err := model.New(model.Key{Kind: kind, Namespace: namespace, Name: name}, 0, body)
	if err != nil {
		panic(err) // a bug of the generator
	}
	return r
}
