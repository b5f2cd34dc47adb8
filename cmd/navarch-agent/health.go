package main

// healthURL is the type URL of discovery requests that report the application's health. The control plane does not
// answer these requests. Istio's agents send this type, too.
const healthURL = "type.googleapis.com/istio.v1.HealthInformation"

// reportHealth logs the application's health and reports it to the control plane. The parameter unhealthy is nil if the
// application is healthy, and else the reason.
func (a *agent) reportHealth(unhealthy error) {
	if unhealthy == nil {
		a.log.Info("the application is healthy")
		a.relay.Report(healthURL, "")
		return
	}
	a.log.Warn("the application is not healthy", "error", unhealthy)
	a.relay.Report(healthURL, unhealthy.Error())
}
