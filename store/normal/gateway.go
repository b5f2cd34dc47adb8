package normal

import (
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// gatewayRecords checks what is read of an Istio Gateway in this version: whom it selects, and the Secrets of its servers
// (https://istio.io/latest/docs/reference/config/networking/gateway/). Hosts and ports stand in the record as they were written.
func gatewayRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	gateway := &networkingv1.Gateway{}
	if !r.spec(obj, gateway) {
		return nil
	}
	r.selector("spec.selector", gateway.Selector)
	for i, s := range gateway.Servers {
		checkServerTLS(r, fmt.Sprintf("spec.servers[%d].tls", i), s.GetTls())
	}
	r.warnf(problem.NotSupported, "", "no listeners are made of a Gateway yet: it only says which Secrets the proxies that it selects use")
	if r.spoiled {
		return nil
	}
	return r.record(model.KindGateway, obj, obj.ID.Name, gateway)
}

func checkServerTLS(r *report, at string, tls *networkingv1.ServerTLSSettings) {
	if _, known := networkingv1.ServerTLSSettings_TLSmode_name[int32(tls.GetMode())]; !known {
		r.errorf(at+".mode", "%v is not known", tls.GetMode())
	}
	if tls.GetCredentialName() != "" && len(tls.GetCredentialNames()) > 0 {
		r.errorf(at+".credentialNames", "stands with credentialName: one of the two")
	}
	if slices.Contains(tls.GetCredentialNames(), "") {
		r.errorf(at+".credentialNames", "one of them is empty")
	}
	if tls.GetMode() == networkingv1.ServerTLSSettings_ISTIO_MUTUAL && (tls.GetCredentialName() != "" || len(tls.GetCredentialNames()) > 0) {
		r.errorf(at+".credentialName", "goes with no Secret in mode ISTIO_MUTUAL, whose certificate is the mesh's")
	}
}
