package nldev

// Attributes (enum rdma_nldev_attr).
const (
	attrDevIndex     = 1
	attrDevName      = 2
	attrPortIndex    = 3
	attrCapFlags     = 4
	attrFirmware     = 5
	attrNodeGUID     = 6
	attrImageGUID    = 7
	attrPortState    = 12
	attrPhysState    = 13
	attrNodeType     = 14
	attrSummary      = 15
	attrSummaryEntry = 16
	attrSummaryName  = 17
	attrSummaryCount = 18
	attrQP           = 19
	attrQPEntry      = 20
	attrLocalQPN     = 21
	attrRemoteQPN    = 22
	attrReceivePSN   = 23
	attrSendPSN      = 24
	attrType         = 26
	attrState        = 27
	attrPID          = 28
	attrCMID         = 30
	attrCMIDEntry    = 31
	attrPortSpace    = 32
	attrSource       = 33
	attrDestination  = 34
	attrCQ           = 35
	attrCQEntry      = 36
	attrCQE          = 37
	attrUsers        = 38
	attrMR           = 40
	attrMREntry      = 41
	attrMRLength     = 45
	attrPD           = 46
	attrPDEntry      = 47
	attrNetdevIndex  = 50
	attrNetdevName   = 51
	attrPDNumber     = 60
	attrCQNumber     = 61
	attrMRNumber     = 62
	attrCMIDNumber   = 63
	attrNetnsMode    = 66
	attrProtocol     = 67
	attrChardevType  = 69
	attrChardevName  = 70
	attrChardevABI   = 71
	attrChardev      = 72
	attrDriver       = 73
	attrCopyOnFork   = 93
)

// Values of attributes.
const (
	port        = 1 // the only port of a device
	nodeCA      = 1 // RDMA_NODE_IB_CA
	portDown    = 1 // enum ib_port_state
	portActive  = 4
	physPolling = 2 // enum ib_port_phys_state
	physLinkUp  = 5
	netnsShared = 1
	driverRxe   = 14 // RDMA_DRIVER_RXE
)
