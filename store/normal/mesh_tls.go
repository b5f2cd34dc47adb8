package normal

import (
	"fmt"
	"slices"
	"strings"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/problem"
)

// serverCiphers are the cipher suites that Istio knows (the comment of ServerTLSSettings.cipher_suites). Envoy refuses a listener or a cluster that names what it
// does not know.
var serverCiphers = []string{"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384",
	"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
	"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
	"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA", "DES-CBC3-SHA"}

// clientCiphers are those that tlsDefaults may name for clients. Istio's control plane sends what stands there as it is, so the two that Envoy 1.40 takes beside
// Istio's list count too.
var clientCiphers = append(slices.Clone(serverCiphers), "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256")

// ecdhCurves are the curves that Envoy takes, each with its other name. Istio takes P-224 and a hybrid with Kyber besides, which Envoy 1.40 refuses.
var ecdhCurves = map[string]string{"P-256": "prime256v1", "P-384": "secp384r1", "P-521": "secp521r1", "X25519": "x25519",
	"X25519MLKEM768": ""}

// checkMeshTLS checks what the mesh says of TLS as Istio's validation of MeshConfig does (pkg/config/validation/agent, ValidateMeshTLSConfig and
// ValidateMeshTLSDefaults): what is not known is named and left out, so that no proxy refuses all of its clusters because of it.
func checkMeshTLS(r *report, config *meshv1.MeshConfig) {
	const servers, defaults = "data.mesh.meshMTLS", "data.mesh.tlsDefaults"
	if tls := config.GetMeshMTLS(); tls != nil {
		checkMinVersion(r, servers, tls)
		tls.CipherSuites = knownCiphers(r, servers+".cipherSuites", tls.CipherSuites, serverCiphers)
		if len(tls.EcdhCurves) > 0 {
			r.errorf(servers+".ecdhCurves", "is not taken by Istio: curves are those of tlsDefaults")
		}
	}
	if tls := config.GetTlsDefaults(); tls != nil {
		checkMinVersion(r, defaults, tls)
		tls.CipherSuites = knownCiphers(r, defaults+".cipherSuites", tls.CipherSuites, clientCiphers)
		tls.EcdhCurves = knownCurves(r, defaults+".ecdhCurves", tls.EcdhCurves)
	}
}

func checkMinVersion(r *report, at string, tls *meshv1.MeshConfig_TLSConfig) {
	if v := tls.MinProtocolVersion; meshv1.MeshConfig_TLSConfig_TLSProtocol_name[int32(v)] == "" {
		r.errorf(at+".minProtocolVersion", "unknown value %d", v)
	}
}

// knownCiphers are those of a list that are among the suites; the others, and what stands there twice, are named. Beside single suites these are equal ones
// ([A|B]), and what is added to or taken away from ALL (+A, -A, !A).
func knownCiphers(r *report, at string, stated, suites []string) (taken []string) {
	is := func(name string) bool { return slices.Contains(suites, name) }
	for i, name := range stated {
		group, equal := strings.CutPrefix(name, "[")
		group, closed := strings.CutSuffix(group, "]")
		known := is(name) || name == "ALL"
		switch {
		case equal && closed:
			known = !slices.ContainsFunc(strings.Split(group, "|"), func(s string) bool { return !is(s) })
		case name != "" && strings.Contains("+-!", name[:1]):
			known = is(name[1:]) && len(taken) > 0 && taken[0] == "ALL"
		}
		switch {
		case !known:
			r.warnf(problem.Invalid, fmt.Sprintf("%s[%d]", at, i), "%q is no cipher suite that proxies take; it is left out", name)
		case slices.Contains(taken, name):
			r.warnf(problem.Duplicate, fmt.Sprintf("%s[%d]", at, i), "%q stands there twice", name)
		default:
			taken = append(taken, name)
		}
	}
	return taken
}

// knownCurves are those of a list that Envoy takes, which refuses a curve that it is told twice.
func knownCurves(r *report, at string, stated []string) (taken []string) {
	first := map[string]bool{}
	for i, name := range stated {
		curve, known := curveOf(name)
		switch {
		case !known:
			r.warnf(problem.Invalid, fmt.Sprintf("%s[%d]", at, i), "%q is no curve that proxies take; it is left out", name)
		case first[curve]:
			r.warnf(problem.Duplicate, fmt.Sprintf("%s[%d]", at, i), "%q stands there twice", name)
		default:
			first[curve], taken = true, append(taken, name)
		}
	}
	return taken
}

// curveOf is the curve that a name is of.
func curveOf(name string) (curve string, known bool) {
	for curve, other := range ecdhCurves {
		if name != "" && (name == curve || name == other) {
			return curve, true
		}
	}
	return "", false
}
