package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
)

// about returns the attributes of a log line about a stream and an error.
func (st *stream) about(err error) []any {
	return []any{obs.KeyNode, st.client.ID, obs.KeyPeer, st.client.Addr, obs.KeyIdentity, st.client.Identity, obs.KeyError, err}
}

// typeName returns the name of a type for log lines. For an agent type the result is url.
func typeName(t xds.Type, url string) string {
	if t < xds.NumTypes {
		return t.String()
	}
	return url
}

// logSent logs a response at level debug.
func (st *stream) logSent(r *delta.Reply) {
	if log := st.srv.cfg.Log; log.Enabled(st.grpc.Context(), slog.LevelDebug) {
		log.Debug("response sent", obs.KeyNode, st.client.ID, obs.KeyType, typeName(r.Type, r.URL), "resources", len(r.Set), "removed",
			len(r.Removed), "bytes", r.Size,
			obs.KeyRevision, r.Revision)
	}
}

// logAcked logs an ACK at level debug. The parameter took is the time from the response to the ACK.
func (st *stream) logAcked(r *delta.Report, took time.Duration) {
	if log := st.srv.cfg.Log; log.Enabled(st.grpc.Context(), slog.LevelDebug) {
		log.Debug("response acknowledged", obs.KeyNode, st.client.ID, obs.KeyType, r.Type.String(), obs.KeyRevision, r.Revision, obs.KeyTook,
			took)
	}
}

// logRefusal logs a NACK. For each resource the first NACK is logged immediately, and later ones are sampled.
func (st *stream) logRefusal(r Refusal) {
	st.srv.refused.Warn("proxy refused configuration", strings.TrimSpace(r.Type.Noun()+" "+r.Name),
		append(st.about(errors.New(r.Text)), obs.KeyType, r.Type.String(),
			obs.KeyName, r.Name, obs.KeyObjects, r.Objects, obs.KeyVersion, r.Version, "stands", r.Good, obs.KeyRevision, r.Revision)...)
}

// These are the steps in which a stream may be refused (stream.step).
const (
	inCredential = "credential"
	inRequest    = "request"
	inJoin       = "join"
	inQuestion   = "question"
)

// maxUnserved bounds the number of unknown types that are logged for one stream.
const maxUnserved = 4

// healthURL is the type URL of requests with which agents report the health of a machine's workload. Such requests get
// no response.
const healthURL = "type.googleapis.com/istio.v1.HealthInformation"

// notServed logs a request of an unknown type, once for each stream and type, and for at most maxUnserved types of a
// stream. The request gets no response. An empty response would remove the resources of this type that a proxy or agent
// has received from another control plane. The removal of an extension configuration can crash Envoy.
func (st *stream) notServed(url string) {
	short := fmt.Sprintf("%.200q", url)
	if len(st.unserved) == maxUnserved || slices.Contains(st.unserved, short) {
		return
	}
	st.unserved = append(st.unserved, short)
	const cause = "unknown type"
	st.srv.clients.Warn("a resource type was requested that this server does not serve: the request gets no response", cause, obs.KeyType,
		short,
		obs.KeyNode, st.client.ID, obs.KeyPeer, st.client.Addr, obs.KeyIdentity, st.client.Identity)
}
