package plan

import (
	"navarch.io/navarch/push/plan/front"
	router "navarch.io/navarch/push/plan/front/gateway"
	"navarch.io/navarch/push/plan/front/grpc"
	"navarch.io/navarch/push/plan/front/sidecar"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// kind contains the functions that plan the configuration of one kind of proxies. A front plans the listeners and route
// configurations of a scope, which is the outbound side of a group of proxies. Other code of the plan depends on the
// kind only in details.
type kind struct {
	// front returns the front of a scope and its host table, without hosts. The Sidecar is nil if no Sidecar applies.
	front func(in *input.Input, key view.Scope, sidecar *model.Sidecar, patches input.PatchSet, to *layer.Layer) (front.Front, *host.Table)
	// workload plans the inbound side. It calls the function yield between two resources.
	workload func(in *input.Input, key view.Workload, yield func()) *inbound.Workload
}

// kinds contains a row for each view.Kind.
var kinds = [...]kind{
	view.Sidecar: {
		front: func(in *input.Input, key view.Scope, of *model.Sidecar, patches input.PatchSet, to *layer.Layer) (front.Front, *host.Table) {
			return sidecar.New(in, key, of, patches, to)
		},
		workload: inbound.New,
	},
	view.Router: {
		front: func(in *input.Input, key view.Scope, _ *model.Sidecar, patches input.PatchSet, to *layer.Layer) (front.Front, *host.Table) {
			return router.New(in, key, patches, to)
		},
		workload: inbound.Bootstrap,
	},
	view.Proxyless: {
		front: func(in *input.Input, key view.Scope, of *model.Sidecar, _ input.PatchSet, to *layer.Layer) (front.Front, *host.Table) {
			return grpc.New(in, key, of, to)
		},
		workload: inbound.Servers,
	},
}
