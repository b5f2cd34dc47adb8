package walk

import "strings"

// Observed is the state of a proxy's endpoints, as its Envoy reports it (/clusters). A Held may implement it.
type Observed interface {
	// Ejected returns the endpoints of a cluster to which Envoy sends nothing at present, with the reasons. An endpoint
	// is an address as in Destination.Endpoints. The result known is false if Envoy was not asked.
	Ejected(cluster string) (reasons map[string]string, known bool)
}

var _ Observed = (*Messages)(nil)

// Asked states that Envoy was asked for the state of all endpoints. Endpoints without a call of Eject are not ejected.
func (m *Messages) Asked() {
	if m.ejected == nil {
		m.ejected = map[string]map[string]string{}
	}
}

// Eject adds an endpoint to which Envoy sends nothing, and the reason. It includes a call of Asked.
func (m *Messages) Eject(cluster, address, reason string) {
	if m.ejected[cluster] == nil {
		set(&m.ejected, cluster, map[string]string{})
	}
	m.ejected[cluster][address] = reason
}

// Ejected implements Observed.
func (m *Messages) Ejected(cluster string) (reasons map[string]string, known bool) {
	return m.ejected[cluster], m.ejected != nil
}

// observe sets Destination.Ejected and Observed, with a step for the ejected endpoints.
func (w *walker) observe(to *Destination) {
	held, is := w.Held.(Observed)
	if !is || len(to.Endpoints) == 0 {
		return
	}
	reasons, known := held.Ejected(to.Cluster)
	to.Observed = known
	var texts []string
	for _, address := range to.Endpoints {
		if reason, out := reasons[address]; out {
			to.Ejected = append(to.Ejected, address)
			texts = append(texts, address+" ("+reason+")")
		}
	}
	if len(texts) > 0 {
		w.step("ejected by Envoy at present: %s", strings.Join(texts, ", "))
	}
}

// doubtEndpoints adds the doubts about the state of endpoints. Missing and empty destinations are ignored.
func (w *walker) doubtEndpoints() {
	observed, reached := true, false
	for i := range w.result.To {
		to := &w.result.To[i]
		if to.Reach == Missing || to.Reach == Empty {
			continue
		}
		reached, observed = true, observed && (to.Observed || to.Reach != Addressed)
		if len(to.Ejected) > 0 && len(to.Ejected) == len(to.Endpoints) {
			w.doubt(Possible, "all endpoints of %s are ejected: %s with flag UH, or Envoy uses them all if the panic threshold allows that",
				to.Cluster, to.failure())
		}
	}
	switch {
	case !reached:
	case observed:
		w.doubt(Likely, "failed connections and full circuit breakers are known to Envoy alone")
	default:
		w.doubt(Likely, "it is unknown which endpoints are ejected; failed connections and full circuit breakers are known to Envoy alone")
	}
}
