package ingest

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/normal"
)

// gatewaysMap is the mesh configuration, with the mesh itself and its networks.
func gatewaysMap(mesh, networks string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: '" + mesh + "', meshNetworks: '" + networks + "'}"
}

const eastWest = "apiVersion: v1\nkind: Service\nmetadata: {name: gw, namespace: istio-system, labels: {topology.istio.io/network: b}}\n" +
	"spec: {clusterIP: 10.96.0.9, externalIPs: [192.0.2.9], ports: [{name: tls, port: 15443}]}"

// Only an edit of the objects that name them removes the gateways of networks. (In istiod, an edit of another Service,
// or the removal of a cluster, may remove a gateway.)
func TestNetworkGatewaysStand(t *testing.T) {
	d := newDesk(t)
	networks := "networks: {c: {gateways: [{address: 192.0.2.1, port: 443}]}}"
	mesh := put(t, gatewaysMap("{}", networks))
	west := of("west", put(t, svc))
	d.want(Objects{mesh, put(t, eastWest), put(t, svc), west, put(t, epSlice("s", "10.0.0.1", "p")), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Mesh mesh +Service gw +Service web +Service web +Endpoints s +NetworkGateways meshNetworks +NetworkGateways gw")

	d.want(Objects{gone(west)}, "write -Service web") // another cluster's
	d.want(Objects{put(t, strings.Replace(svc, "port: 80", "port: 81", 1))}, "write +Service web")
	d.want(Objects{put(t, svc)}, "write +Service web")
	d.want(Objects{put(t, gatewaysMap("a: [", networks))})
	// no port: the last good version stays in effect
	d.want(Objects{put(t, gatewaysMap("{}", "networks: {c: {gateways: [{address: 192.0.2.1}]}}"))})
	d.want(Objects{put(t, gatewaysMap("a: [", "networks: {c: {gateways: [{address: 192.0.2.2, port: 443}]}}"))}, "write +NetworkGateways meshNetworks")

	// Another leader reads an invalid value: the stored gateways stay, and are removed once the value is valid.
	for _, c := range []struct{ mesh, networks string }{{"a: [", "b: ["}, {"{}", "b: ["}, {"a: [", networks}} {
		d.s = NewState(Options{Normal: normal.Options{}})
		d.lead()
		d.want(Objects{put(t, gatewaysMap(c.mesh, c.networks)), put(t, eastWest), put(t, svc), put(t, epSlice("s", "10.0.0.1", "p")), synced}, "load")
	}
	d.s = NewState(Options{Normal: normal.Options{}})
	d.lead()
	d.want(Objects{put(t, gatewaysMap("{}", "b: [")), put(t, eastWest), put(t, svc), put(t, epSlice("s", "10.0.0.1", "p")), synced}, "load")
	d.want(Objects{put(t, gatewaysMap("{}", "{b: [")), put(t, eastWest)})
	d.want(Objects{put(t, gatewaysMap("{}", "networks: {}"))}, "write -NetworkGateways meshNetworks")
	d.want(Objects{gone(put(t, eastWest))}, "write -Service gw -NetworkGateways gw")
}
