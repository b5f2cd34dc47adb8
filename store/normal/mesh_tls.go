package normal

import (
	"fmt"
	"slices"
	"strings"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/problem"
)

// serverCiphers are the cipher suites that Istio accepts (comment of ServerTLSSettings.cipher_suites). Envoy refuses a
// listener or a cluster with an unknown suite.
var serverCiphers = []string{"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384",
	"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
	"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
	"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA", "DES-CBC3-SHA"}

// clientCiphers are the cipher suites that tlsDefaults may contain for clients. Istio sends this list unchanged, so the
// two suites that Envoy 1.40 accepts beyond Istio's list are valid too.
var clientCiphers = append(slices.Clone(serverCiphers), "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256")

// ecdhCurves maps the curves that Envoy accepts to their alternative names. Istio also accepts P-224 and a hybrid with
// Kyber, which Envoy 1.40 refuses.
var ecdhCurves = map[string]string{"P-256": "prime256v1", "P-384": "secp384r1", "P-521": "secp521r1", "X25519": "x25519",
	"X25519MLKEM768": ""}

// checkMeshTLS validates meshMTLS and tlsDefaults as Istio's validation does (pkg/config/validation/agent,
// ValidateMeshTLSConfig and ValidateMeshTLSDefaults). Unknown and repeated cipher suites and curves are reported and
// removed, since proxies would refuse all clusters with them. An unknown minimum version is an error, and so are curves
// in meshMTLS.
func checkMeshTLS(r *report, config *meshv1.MeshConfig) {
	const servers, defaults = "data.mesh.meshMTLS", "data.mesh.tlsDefaults"
	if tls := config.GetMeshMTLS(); tls != nil {
		checkMinVersion(r, servers, tls)
		tls.CipherSuites = knownCiphers(r, servers+".cipherSuites", tls.CipherSuites, serverCiphers)
		if len(tls.EcdhCurves) > 0 {
			r.errorf(servers+".ecdhCurves", "is not supported by Istio: set ecdhCurves of tlsDefaults")
		}
	}
	if tls := config.GetTlsDefaults(); tls != nil {
		checkMinVersion(r, defaults, tls)
		tls.CipherSuites = knownCiphers(r, defaults+".cipherSuites", tls.CipherSuites, clientCiphers)
		tls.EcdhCurves = knownCurves(r, defaults+".ecdhCurves", tls.EcdhCurves)
	}
}

// checkMinVersion reports an unknown minimum version of TLS.
func checkMinVersion(r *report, at string, tls *meshv1.MeshConfig_TLSConfig) {
	if v := tls.MinProtocolVersion; meshv1.MeshConfig_TLSConfig_TLSProtocol_name[int32(v)] == "" {
		r.errorf(at+".minProtocolVersion", "unknown value %d", v)
	}
}

// knownCiphers returns the entries of a list that are valid cipher suites; unknown and repeated entries are reported
// and omitted. An entry is a suite, a group of equal preference ([A|B]), ALL, or an operation on ALL (+A, -A, !A). An
// operation is valid only if ALL is the first valid entry.
func knownCiphers(r *report, at string, stated, suites []string) (known []string) {
	inSuites := func(name string) bool { return slices.Contains(suites, name) }
	for i, name := range stated {
		group, equal := strings.CutPrefix(name, "[")
		group, closed := strings.CutSuffix(group, "]")
		valid := inSuites(name) || name == "ALL"
		switch {
		case equal && closed:
			valid = !slices.ContainsFunc(strings.Split(group, "|"), func(s string) bool { return !inSuites(s) })
		case name != "" && strings.Contains("+-!", name[:1]):
			valid = inSuites(name[1:]) && len(known) > 0 && known[0] == "ALL"
		}
		switch {
		case !valid:
			r.warnf(problem.Invalid, fmt.Sprintf("%s[%d]", at, i), "%q is not a cipher suite that proxies support; the entry is left out", name)
		case slices.Contains(known, name):
			r.warnf(problem.Duplicate, fmt.Sprintf("%s[%d]", at, i), "%q occurs twice", name)
		default:
			known = append(known, name)
		}
	}
	return known
}

// knownCurves returns the entries of a list that Envoy accepts; unknown and repeated curves are reported and omitted,
// since Envoy refuses both.
func knownCurves(r *report, at string, stated []string) (accepted []string) {
	first := map[string]bool{}
	for i, name := range stated {
		curve, known := curveOf(name)
		switch {
		case !known:
			r.warnf(problem.Invalid, fmt.Sprintf("%s[%d]", at, i), "%q is not a curve that proxies support; the entry is left out", name)
		case first[curve]:
			r.warnf(problem.Duplicate, fmt.Sprintf("%s[%d]", at, i), "%q occurs twice", name)
		default:
			first[curve], accepted = true, append(accepted, name)
		}
	}
	return accepted
}

// curveOf returns the curve for one of its names; known is false for any other name.
func curveOf(name string) (curve string, known bool) {
	for curve, other := range ecdhCurves {
		if name != "" && (name == curve || name == other) {
			return curve, true
		}
	}
	return "", false
}
