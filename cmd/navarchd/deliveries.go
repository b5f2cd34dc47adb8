package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/store/obs"
)

// Bounds of the label tenant in the metrics of deliveries: the number of values, and the time without use after which
// another tenant may replace a value.
const (
	maxDeliveryTenants = 100
	deliveryIdle       = time.Hour
)

// reported counts the deliveries of the ledger l in metrics by tenant. tenantOf returns the tenant of a namespace.
func reported(l *ledger.Ledger, tenantOf func(namespace string) string) {
	slots := &obs.Slots{Most: maxDeliveryTenants, Idle: deliveryIdle, Free: func(tenant string) {
		obs.TenantDelivery.DeleteLabelValues(tenant)
		obs.TenantDeliveries.DeletePartialMatch(prometheus.Labels{"tenant": tenant})
	}}
	l.Report(tenantOf, func(d ledger.Delivery) {
		tenant := slots.Of(d.Tenant, time.Now())
		if d.Most > 0 {
			obs.TenantDelivery.WithLabelValues(tenant).Observe(d.Most.Seconds())
		}
		for result, n := range map[string]int{"acknowledged": d.Acknowledged, "refused": d.Refused, "gone": d.Gone, "pending": d.Pending} {
			if n > 0 {
				obs.TenantDeliveries.WithLabelValues(tenant, result).Add(float64(n))
			}
		}
	})
}
