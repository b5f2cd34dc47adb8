package main

// healthURL is the type of the request in which an agent says how its application is; it has no answer. Istio's agents say so, too.
const healthURL = "type.googleapis.com/istio.v1.HealthInformation"

// sayHealth tells the control plane how the application is; nil: it is well.
func (a *agent) sayHealth(wrong error) {
	if wrong == nil {
		a.log.Info("the application is healthy")
		a.relay.Report(healthURL, "")
		return
	}
	a.log.Warn("the application is not healthy", "error", wrong)
	a.relay.Report(healthURL, wrong.Error())
}
