"""Send from several ports to the last one, with DCQCN, and print the metrics of all flows.

Usage: incast.py LOCATION,ADDRESS,GATEWAY LOCATION,ADDRESS,GATEWAY ...
"""

import sys
import time

import snappi

SPEED = "speed_1_gbps"
RATE = 20  # per cent of SPEED
SECONDS = 10


def configure(api, ends):
    config = api.config()
    for number, (location, address, gateway) in enumerate(ends):
        config.ports.port(name="p%d" % number, location=location)
        device = config.devices.device(name="d%d" % number)[-1]
        ethernet = device.ethernets.ethernet(name="e%d" % number)[-1]
        ethernet.mac = "02:00:00:00:01:%02x" % number
        ethernet.mtu = 9000
        ethernet.connection.port_name = "p%d" % number
        ethernet.ipv4_addresses.ipv4(name="a%d" % number, address=address, gateway=gateway)
        interface = device.rocev2.ipv4_interfaces.add()
        interface.ipv4_name = "a%d" % number
        interface.ib_mtu = 4096
        peer = interface.peers.add()
        peer.name = "peer%d" % number
        receiver = number == len(ends) - 1
        peer.destination_ip_address = "0.0.0.0" if receiver else ends[-1][1]
        qp = peer.qps.add()
        qp.qp_name = "qp%d" % number
        rc = qp.connection_type.reliable_connection
        rc.source_qp_number = 33
        rc.dscp = 3
        rc.ecn = "ect_0"
        if receiver:
            continue
        tx = config.stateful_flows.rocev2.add().tx_ports.add()
        tx.port_name = "p%d" % number
        tx.transmit_type.target_line_rate.value = RATE
        flow = tx.transmit_type.target_line_rate.flows.add()
        flow.name = "flow%d" % number
        flow.tx_endpoint = "qp%d" % number
        flow.rocev2_verb.choice = "write"
        flow.message_size = 128
        flow.message_size_unit = "kb"
    for port in config.ports:
        per_port = config.options.per_port_options.add()
        per_port.port_name = port.name
        settings = per_port.protocols.add().rocev2
        settings.connection_type.reliable_connection.retransmission_timeout_value = 100
        settings.dcqcn_settings.initial_rate_after_first_cnp = 5
        settings.dcqcn_settings.minimum_rate_limmit = 1
        settings.dcqcn_settings.additive_increment_rate = 0.1
        settings.dcqcn_settings.hyper_increment_rate = 0.5
    layer1 = config.layer1.layer1(name="speed")[-1]
    layer1.port_names = [port.name for port in config.ports]
    layer1.speed = SPEED
    return config


def traffic(api, state):
    control = api.control_state()
    control.traffic.flow_transmit.state = state
    api.set_control_state(control)


def metrics(api):
    request = api.metrics_request()
    request.rocev2_flow.choice = "per_qp"
    return api.get_metrics(request).rocev2_flow_per_qp_metrics


def main():
    ends = [argument.split(",") for argument in sys.argv[1:]]
    if len(ends) < 2:
        sys.exit(__doc__)
    api = snappi.api(location="https://127.0.0.1:8443", verify=False)
    for warning in api.set_config(configure(api, ends)).warnings:
        print("warning:", warning)
    traffic(api, "start")
    time.sleep(SECONDS)
    rates = {metric.flow_name: metric.data_rx_rate for metric in metrics(api)}
    traffic(api, "stop")
    while any(m.data_tx_rate > 0 or m.message_tx != m.message_complete_rx + m.message_fail for m in metrics(api)):
        time.sleep(1)
    failed = 0
    for m in metrics(api):
        print(m.flow_name, "%.3f Gb/s," % rates[m.flow_name], m.message_complete_rx, "messages,", m.ecn_ce_rx, "marked frames,",
              m.cnp_rx, "CNPs,", m.data_frames_retransmitted, "retransmitted,", m.message_fail, "failed")
        failed += m.message_fail
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
