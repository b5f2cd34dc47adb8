package normal

import (
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// serviceAccountRecords is a ServiceAccount of a cluster, with which tokens are compared. One in a folder of files says nothing about tokens.
func serviceAccountRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	if obj.UID == "" {
		return nil
	}
	return r.record(model.KindServiceAccount, obj, obj.ID.Name, &model.ServiceAccountSpec{Uid: model.UID(obj.UID)})
}

// namespaceRecords is a Namespace of a cluster: that it is there, whatever selects what is read. One in a folder of files says nothing about tokens.
func namespaceRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	if obj.ID.Origin.Source() != origin.Kube {
		return nil
	}
	return r.record(model.KindNamespace, obj, obj.ID.Name, &model.ServiceAccountSpec{})
}
