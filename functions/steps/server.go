// Package steps serves the internal tasks of the transaction manager: the lease sessions of a submitter,
// and the delivery of events.
package steps

import (
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/worker"
)

// Server serves the functions advance, receipt, confirm, resubmit and publish.
type Server struct {
	*serve.Base
	WorkerOf   func(txmanager.Submitter) (*worker.Worker, error)
	Deliveries *events.Worker
	Slots      DeliverySlots
}
